"""Memory planning: live ranges in, one arena per device out."""

from ren_lab.memory.arena import MAX_ALIGNMENT, plan_arenas
from ren_lab.memory.plan import BufferUse, MemoryPlan, PlannedBuffer, format_bytes
from ren_lab.memory.tlsf import TLSF, Block

__all__ = ["MAX_ALIGNMENT", "TLSF", "Block", "BufferUse", "MemoryPlan", "PlannedBuffer", "format_bytes", "plan_arenas"]
