"""Which moduli a degree can carry at 128-bit security.

The figures hold against classical attacks, for a secret with independent uniform coefficients from {-1, 0, 1} and a discrete
Gaussian error of standard deviation 3.19 or more: Bossuat et al., "Security Guidelines for Implementing Homomorphic
Encryption", IACR ePrint 2024/463, table 5.2. They say nothing about sparse secrets.
"""

LEVEL_BITS = 128
"""The security level that the table is for."""

_MAX_LOG2_QP = {1 << 10: 26, 1 << 11: 53, 1 << 12: 106, 1 << 13: 214, 1 << 14: 430, 1 << 15: 868, 1 << 16: 1747}

DEGREES = tuple(_MAX_LOG2_QP)
"""The degrees that the table covers, smallest first."""


def max_log2_qp(n: int) -> int:
    """The largest log2(QP) at 128-bit security for degree `n`; 0 if the table does not cover the degree.

    QP is the product of all moduli of the largest ring in which something encrypted under the secret is published: the
    levels' moduli and the special ones.
    """
    return _MAX_LOG2_QP.get(n, 0)


def security_bits(n: int, log2_qp: float) -> int:
    """128 where the table grants it, otherwise 0: nothing is claimed."""
    return LEVEL_BITS if log2_qp <= max_log2_qp(n) else 0
