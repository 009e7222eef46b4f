"""The renderer: kernel bodies become source text, in a dialect that the backend chooses."""

from ren_lab.backends.render.dialect import C, Dialect
from ren_lab.backends.render.parameters import Parameters, Table, fold
from ren_lab.backends.render.renderer import Rendered, render
from ren_lab.backends.render.stages import Stage, split

__all__ = ["C", "Dialect", "Parameters", "Rendered", "Stage", "Table", "fold", "render", "split"]
