"""What differs between the languages that kernels are rendered to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a language says what every kernel needs.

    The expressions themselves (`add`, `sub`, `neg`, `mul`, `scale`, `load`, `gather`, `store`, `impulse`) are spelled alike in all
    dialects; each provides them.

    Attributes:
        name: of the language.
        word: the type of the residues that one step works on, a vector or a single one.
        lanes: the expression for how many there are in a word.
        header: what the text begins with.
        block_words: how many words of a block of columns a conversion keeps at hand.
        row_chunk: elementwise work on a row is handed out in pieces of so many coefficients.
        row_by_row: transforms may stand in the middle of an expression: a row is transformed, then used.
    """

    name: str
    word: str
    lanes: str
    header: str
    block_words: int
    row_chunk: int
    row_by_row: bool = False


C = Dialect("C", "word", "LANES", '#include "kernel.h"\n', 1 << 14, 1 << 13, row_by_row=True)
