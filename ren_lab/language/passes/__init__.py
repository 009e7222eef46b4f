"""The passes of the language, one module each, and the pipeline that orders them."""

from ren_lab.language.passes.pipeline import PASSES, PassRecord, run_passes

__all__ = ["PASSES", "PassRecord", "run_passes"]
