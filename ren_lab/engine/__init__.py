"""The engine: schedules become programs, programs run, outputs become buffers."""

from ren_lab.engine.compile import clear_schedule_cache, compile_sink, draws_below, realize_nodes, schedule_cache_info, sink_of
from ren_lab.engine.storage import host_words, new_buffer, storage_of
from ren_lab.engine.units import ExecUnit, Program, make_exec_units, outputs, plan_memory, run_exec_units
from ren_lab.schedule import ScheduledKernel

__all__ = [
    "ExecUnit", "Program", "ScheduledKernel", "clear_schedule_cache", "compile_sink", "draws_below", "host_words",
    "make_exec_units", "new_buffer", "outputs", "plan_memory", "realize_nodes", "run_exec_units",
    "schedule_cache_info", "sink_of", "storage_of",
]  # fmt: skip
