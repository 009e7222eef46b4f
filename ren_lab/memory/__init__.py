"""Memory planning: live ranges in, one arena per device out."""

from ren_lab.memory.arena import MAX_ALIGNMENT, plan_arenas
from ren_lab.memory.plan import BufferUse, MemoryPlan, PlannedBuffer
from ren_lab.memory.tlsf import TLSF, Block
from ren_lab.words import format_bytes

__all__ = ["MAX_ALIGNMENT", "TLSF", "Block", "BufferUse", "MemoryPlan", "PlannedBuffer", "format_bytes", "plan_arenas"]
