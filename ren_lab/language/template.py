"""A function of the language before anything is known of its arguments."""

from collections.abc import Callable, Mapping
from typing import Any

from ren_lab.language import nodes as ir
from ren_lab.language.errors import LanguageError
from ren_lab.language.parse_function import Declaration, parse_function
from ren_lab.language.source import function_tree, names_of

RECURSION = (
    "it is recursion: the function calls itself, directly or through others",
    "use a loop; a program is compiled as a whole, with every call in its place",
)


class Template:
    """A parsed function, and the names by which it calls others.

    Attributes:
        function: its IR, with parameters as far as they are annotated.
        declaration: what its decorator says.
        names: what its body sees.
        methods: the other functions of its program class, where it belongs to one.
        warned: warnings that have been given for it.
    """

    ren_template = True

    def __init__(self, function: ir.Function, declaration: Declaration, names: Mapping[str, Any]) -> None:
        self.function = function
        self.declaration = declaration
        self.names = names
        self.methods: dict[str, Template] = {}
        self.warned: set[Any] = set()

    @classmethod
    def of(cls, function: Callable[..., Any], declaration: Declaration) -> "Template":
        """Parse a Python function."""
        if not hasattr(function, "__code__"):
            raise TypeError(f"{declaration.written} decorates a {type(function).__name__}; decorate a function")
        tree, source = function_tree(function)
        names = names_of(function)
        annotations = getattr(function, "__annotations__", {})
        return cls(parse_function(tree, source, names, declaration, annotations), declaration, names)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.name

    def lookup(self, name: str, own: bool = False) -> "Template | None":
        """The function that a call names; None where there is none yet. `own` is for functions of the same program only.

        Raises:
            LanguageError: the name means something else.
        """
        if name in self.methods or own:
            return self.methods.get(name)
        head, *rest = name.split(".")
        if head not in self.names:
            return None
        found = self.names[head]
        for part in rest:
            found = getattr(found, part, None)
        found = getattr(found, "template", found)
        if isinstance(found, Template):
            return found
        raise LanguageError(
            f"call of {name}", f"{name} is a {type(found).__name__}, not a function of the language",
            "decorate it with @pl.jit.incore or @pl.jit.inline", self.function.loc,
        )  # fmt: skip
