"""The intermediate representation: nodes, operations, rewriting, and the text form."""

from ren_lab.ir.node import (
    KernelSpec,
    Node,
    Origin,
    attach,
    buffer,
    const,
    const_value,
    in_domain,
    is_const,
    is_scalar,
    is_settled,
    join_rows,
    rebuilt,
    shape_of,
    stamp,
    storage,
    transform,
    watch,
)
from ren_lab.ir.op import (
    CONVERSIONS,
    ELEMENTWISE,
    Automorphism,
    Axis,
    Boundary,
    BufferId,
    Const,
    DType,
    LimbSelect,
    Op,
    Random,
    Slot,
    View,
)
from ren_lab.ir.rewrite import Match, RewriteBudgetExceeded, Rule, rewrite, rule, substitute
from ren_lab.ir.text import format_arg, parse, print_graph

__all__ = [
    "CONVERSIONS", "ELEMENTWISE", "Automorphism", "Axis", "Boundary", "BufferId", "Const", "DType", "KernelSpec", "LimbSelect",
    "Match", "Node", "Op", "Origin", "Random", "RewriteBudgetExceeded", "Rule", "Slot", "View", "attach", "buffer", "const",
    "const_value", "format_arg", "in_domain", "is_const", "is_scalar", "is_settled", "join_rows", "parse", "print_graph",
    "rebuilt", "rewrite", "rule", "shape_of", "stamp", "storage", "substitute", "transform", "watch",
]  # fmt: skip
