"""From a lazy graph to a schedule: twelve passes, one module each, and the pipeline that orders them."""

from ren_lab.schedule.canonical import canonical
from ren_lab.schedule.passes import Invariant, Pass
from ren_lab.schedule.pipeline import PIPELINE, Schedule, ScheduledKernel, VerificationError, run_passes, schedule, verify

__all__ = [
    "PIPELINE", "Invariant", "Pass", "Schedule", "ScheduledKernel", "VerificationError", "canonical", "run_passes", "schedule",
    "verify",
]  # fmt: skip
