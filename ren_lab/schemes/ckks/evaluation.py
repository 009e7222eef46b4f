"""Arithmetic on ciphertexts: what each operator becomes, levels, scales and factors included.

A ciphertext holds factor * (b + a*s) / scale. Its factor is an integer that has not been multiplied in: integer factors cost
nothing until ciphertexts with different ones meet, and a product takes them in before it is divided, where they cost no precision.

The scale of a ciphertext is its level's. One that must come down, to meet another, is restricted to the moduli of the level
above its goal, multiplied by the integer that corrects the scale, and divided by the group of that level. The correction is exact
within 2^-scale_bits, so operands of a sum always have one scale.
"""

import dataclasses
import math
import numbers
from functools import partial
from typing import Any, NoReturn, Self

import numpy as np

from ren_lab.events import OperationDone, emitter, one_line, place_name, user_line
from ren_lab.poly import Poly
from ren_lab.schemes.ckks import noise
from ren_lab.schemes.ckks.keys import CKKSContext, context
from ren_lab.schemes.ckks.keyswitch import SwitchingKey, switched
from ren_lab.schemes.ckks.noise import Estimate
from ren_lab.schemes.ckks.params import CKKSParams
from ren_lab.schemes.ckks.plaintext import Plaintext, as_slots, check_room, encode_slots, lowered, real_number


class Arithmetic:
    """The operators of `Ciphertext`. Operands may be ciphertexts, plaintexts, numbers, sequences and one-dimensional arrays."""

    __slots__ = ()
    __array_ufunc__ = None  # arrays leave arithmetic with a ciphertext to the ciphertext

    a: Poly
    b: Poly
    level: int
    scale: float
    factor: int
    key_id: int
    estimate: Estimate

    # sums

    def __add__(self, other: Any) -> Self:
        return self._sum(other, 1)

    def __radd__(self, other: Any) -> Self:
        return self._sum(other, 1)

    def __sub__(self, other: Any) -> Self:
        return self._sum(other, -1)

    def __rsub__(self, other: Any) -> Self:
        return (-self)._sum(other, 1)

    def __neg__(self) -> Self:
        estimate = Estimate.of(partial(noise.scaled, -1, 0.0), self.estimate)
        return self._made("negate", context(), a=-self.a, b=-self.b, estimate=estimate)

    def __pos__(self) -> Self:
        return self

    def _sum(self, other: Any, sign: int) -> Self:
        ctx = context()
        other = _operand(ctx, self, other)
        if other is NotImplemented:
            return NotImplemented
        if isinstance(other, Arithmetic):
            return self._sum_of_ciphertexts(ctx, other, sign)
        if isinstance(other, Plaintext):
            level = min(_nominal_level(ctx, self), _nominal_level(ctx, other))
            x = self._at(ctx, level, "sum")._settled()
            plain = lowered(ctx, other, level)
            estimate = Estimate.of(noise.added, x.estimate, _signed(plain.estimate, sign))
            return x._made("add_plain", ctx, b=x.b + plain.poly if sign > 0 else x.b - plain.poly, estimate=estimate)
        x, value = self._settled(), sign * other
        check_room(abs(value), x.scale, x.b.ring, f"the constant {other!r}")
        known = Estimate(noise.scaled(value, 0.25 / x.scale**2, _ONE))
        summand = _constant(ctx, value, x.scale, x.b)
        return x._made("add_plain", ctx, b=x.b + summand, estimate=Estimate.of(noise.added, x.estimate, known))

    @one_line
    def _sum_of_ciphertexts(self, ctx: CKKSContext, other: "Arithmetic", sign: int) -> Self:
        level = min(_nominal_level(ctx, self), _nominal_level(ctx, other))
        x, y = self._at(ctx, level, "sum"), other._at(ctx, level, "sum")
        if _same(x, y):
            return x._with_factor(ctx, x.factor + sign * y.factor)
        if x.factor != y.factor:
            x, y = x._settled(), y._settled()
        estimate = Estimate.of(noise.added, x.estimate, _signed(y.estimate, sign))
        b, a = (x.b + y.b, x.a + y.a) if sign > 0 else (x.b - y.b, x.a - y.a)
        return x._made("add", ctx, a=a, b=b, estimate=estimate)

    # products

    def __mul__(self, other: Any) -> Self:
        ctx = context()
        other = _operand(ctx, self, other)
        if other is NotImplemented:
            return NotImplemented
        if isinstance(other, Arithmetic):
            return self._product(ctx, other)
        if isinstance(other, Plaintext):
            level = min(_nominal_level(ctx, self), _nominal_level(ctx, other))
            x = self._at(ctx, level, "product")
            _needs_level(ctx, x, "product")
            plain = lowered(ctx, other, level)
            factor = plain.poly if x.factor == 1 else plain.poly * x.factor
            return x._rescaled(ctx, factor, plain.estimate)
        return self._multiple(ctx, other)

    def __rmul__(self, other: Any) -> Self:
        return self * other

    def __truediv__(self, other: Any) -> Self:
        if isinstance(other, numbers.Number) and not isinstance(other, bool):
            return self * (1 / other)  # type: ignore[operator]
        return NotImplemented

    def __pow__(self, exponent: int) -> Self:
        """A power by repeated squaring; x^k takes ceil(log2(k)) levels, the least there is."""
        if isinstance(exponent, bool) or not isinstance(exponent, numbers.Integral) or exponent < 1:
            raise ValueError(f"the exponent is {exponent!r}; powers of ciphertexts are whole numbers from 1 up")
        square = self
        result: Self | None = None
        while True:
            if exponent & 1:  # low powers first: each meets the next square at its level or above
                result = square if result is None else result * square
            exponent >>= 1
            if not exponent:
                assert result is not None
                return result
            square = square * square

    def _multiple(self, ctx: CKKSContext, value: complex) -> Self:
        """The product with a number."""
        total = value * self.factor
        if total == (whole := int(total.real)):
            return self._with_factor(ctx, whole)
        if value.real == int(value.real) and value.imag == int(value.imag):
            estimate = Estimate.of(partial(noise.scaled, value, 0.0), self.estimate)
            turn = _constant(ctx, value, 1.0, self.b)
            return self._made("multiply_plain", ctx, a=self.a * turn, b=self.b * turn, estimate=estimate)
        _needs_level(ctx, self, "product")
        here, below = ctx.params.levels[self.level], ctx.params.levels[self.level - 1]
        scale = below.scale * math.prod(here.group) / self.scale
        check_room(abs(total), scale, self.b.ring, f"the constant {value!r}")
        known = Estimate(noise.scaled(value, 0.25 / scale**2, _ONE))
        return self._rescaled(ctx, _constant(ctx, total, scale, self.b), known)

    def _with_factor(self, ctx: CKKSContext, factor: int) -> Self:
        """The same polynomials under another factor."""
        estimate = Estimate.of(partial(noise.scaled, factor / self.factor, 0.0), self.estimate)
        if not factor:
            return self._made("multiply_plain", ctx, a=self.a * 0, b=self.b * 0, factor=1, estimate=estimate)
        return self._made("multiply_plain", ctx, factor=factor, estimate=estimate)

    @one_line
    def _rescaled(self, ctx: CKKSContext, factor: Poly | int, other: Estimate) -> Self:
        """The product with an encoded factor that takes in this factor and brings the scale to that below times the group."""
        here, below = ctx.params.levels[self.level], ctx.params.levels[self.level - 1]
        b, a = (self.b * factor).rescale(here.group), (self.a * factor).rescale(here.group)
        variance = noise.slot_variance(ctx.params, noise.rounding_variance(ctx.params.n), below.scale)
        estimate = Estimate.of(partial(noise.product, variance), self.estimate, other)
        return self._made("multiply_plain", ctx, a=a, b=b, level=below.index, scale=below.scale, factor=1, estimate=estimate)

    @one_line
    def _product(self, ctx: CKKSContext, other: "Arithmetic") -> Self:
        """Multiply, relinearize, divide by special primes and group."""
        params = ctx.params
        level = min(_nominal_level(ctx, self), _nominal_level(ctx, other))
        x, y = self._at(ctx, level, "product"), other._at(ctx, level, "product")
        _needs_level(ctx, x, "product")
        here, below = params.levels[level], params.levels[level - 1]
        square = _same(x, y)
        d0, d2 = x.b * y.b, x.a * y.a
        d1 = x.a * x.b * 2 if square else x.a * y.b + y.a * x.b
        factor = x.factor * y.factor
        if factor != 1:
            d0, d1, d2 = d0 * factor, d1 * factor, d2 * factor
        parts = []
        for switching, direct in zip(switched(params, level, d2, ctx.relinearization_key), (d0, d1)):
            lifted = direct.to_ring(switching.ring) * params.special_ring.q  # 0 modulo the special primes
            parts.append((switching + lifted).rescale(params.special + here.group))
        estimate = _product_estimate(params, level, x, y, square)
        return x._made("multiply", ctx, b=parts[0], a=parts[1], level=below.index, scale=below.scale, factor=1, estimate=estimate)

    # automorphisms

    @one_line
    def rotate(self, k: int) -> Self:
        """Slot j of the result is slot j + k; `k` is any integer, counted modulo n/2.

        Rotations of one ciphertext that are computed together share most of their work.

        Raises:
            TypeError: `k` is no integer.
            RuntimeError: the key is missing, and the active context has no secret key to make it.
        """
        if isinstance(k, bool) or not isinstance(k, numbers.Integral):
            raise TypeError(f"a rotation is by {k!r} of type {type(k).__name__}; give an int")
        ctx = context()
        check_keys(ctx, self)
        k = int(k) % ctx.params.slot_count
        if k == 0:
            return self
        b, a = self._switched(ctx, ctx.rotation_key(k))
        return self._made("rotate", ctx, b=b.rotate(k), a=a.rotate(k), estimate=self._moved_estimate(ctx))

    @one_line
    def conjugate(self) -> Self:
        """The complex conjugate of every slot; errors as for `rotate`."""
        ctx = context()
        check_keys(ctx, self)
        b, a = self._switched(ctx, ctx.conjugation_key())
        return self._made("conjugate", ctx, b=b.conjugate(), a=a.conjugate(), estimate=self._moved_estimate(ctx))

    def _switched(self, ctx: CKKSContext, key: SwitchingKey) -> tuple[Poly, Poly]:
        """(b, a) under the secret that `key` leads to."""
        special = ctx.params.special
        b, a = switched(ctx.params, self.level, self.a, key)
        return self.b + b.rescale(special), a.rescale(special)

    def _moved_estimate(self, ctx: CKKSContext) -> Estimate:
        params = ctx.params
        variance = noise.switching_variance(params, self.level) + noise.rounding_variance(params.n)
        in_slots = self.factor**2 * noise.slot_variance(params, variance, self.scale)
        return Estimate.of(partial(noise.moved, in_slots), self.estimate)

    def sum(self, length: int | None = None) -> Self:
        """Slot j of the result is the sum of slots j to j + length - 1, counted modulo n/2; by default, of all slots.

        It takes about log2(length) rotations, whose amounts are powers of two when `length` is one.

        Raises:
            ValueError: `length` is not from 1 to n/2.
        """
        slots = context().params.slot_count
        length = slots if length is None else length
        if isinstance(length, bool) or not isinstance(length, int | np.integer) or not 1 <= length <= slots:
            raise ValueError(f"the sum is of {length!r} slots; there are {slots}, so give 1 to {slots}")
        block, width, total, covered = self, 1, None, 0  # `block` sums `width` slots, `total` the first `covered`
        while True:
            if length & width:
                total = block if total is None else total + block.rotate(covered)
                covered += width
            if 2 * width > length:
                assert total is not None
                return total
            block, width = block + block.rotate(width), 2 * width

    # levels

    def to_level(self, level: int) -> Self:
        """The same values at a lower level.

        Raises:
            ValueError: the level is above that of the ciphertext, or below 0.
        """
        ctx = context()
        check_keys(ctx, self)
        if isinstance(level, bool) or not isinstance(level, numbers.Integral) or not 0 <= level <= self.level:
            raise ValueError(f"the level is {level!r}; a ciphertext at level {self.level} can go to levels 0 to {self.level}")
        return self._at(ctx, int(level), "change of level")

    @one_line
    def _at(self, ctx: CKKSContext, level: int, what: str) -> Self:
        """The same values at a level, at its nominal scale."""
        levels = ctx.params.levels
        if self.level == level and self.scale == levels[level].scale:
            return self
        if level < 0 or level == self.level:
            _exhausted(ctx, self, what)
        above, goal = levels[level + 1], levels[level]
        factor = round(goal.scale * math.prod(above.group) / self.scale)
        b, a = ((poly.to_ring(above.ring) * factor).rescale(above.group) for poly in (self.b, self.a))
        variance = self.factor**2 * noise.slot_variance(ctx.params, noise.rounding_variance(ctx.params.n), goal.scale)
        estimate = Estimate.of(partial(noise.rounded, variance), self.estimate)
        return self._made("lower", ctx, b=b, a=a, level=level, scale=goal.scale, estimate=estimate)

    def _settled(self) -> Self:
        """The same ciphertext with its factor multiplied in."""
        if self.factor == 1:
            return self
        return dataclasses.replace(self, b=self.b * self.factor, a=self.a * self.factor, factor=1)  # type: ignore[type-var]

    # what it is like

    @property
    def log2_scale(self) -> float:
        """log2 of the magnitude of the scale."""
        return math.log2(abs(self.scale))

    @property
    def precision_bits(self) -> float:
        """The estimate for the worst slot: -log2 of the standard deviation of the error of its real part."""
        return self.estimate.value.precision_bits

    @property
    def noise_bits(self) -> float:
        """The estimate of log2 of the standard deviation of the error of a coefficient of b + a*s."""
        variance = self.estimate.value.variance / self.b.ring.n * (self.scale / self.factor) ** 2
        return 0.5 * math.log2(variance) if variance else -math.inf

    def _made(self, name: str, ctx: CKKSContext, **changes: Any) -> Self:
        """A ciphertext with some fields changed; observers hear of it."""
        check_keys(ctx, self)
        made: Self = dataclasses.replace(self, **changes)  # type: ignore[type-var]
        announce(name, made)
        return made


_ONE = noise.Noise(1.0, 1.0, 0.0, 0.0)


def announce(name: str, made: Arithmetic) -> None:
    """Tell observers of an operation and its result."""
    emit = emitter()
    if emit is not None:
        emit(OperationDone(name, made.level, made.log2_scale, made.precision_bits, made.noise_bits, user_line()))


def _same(x: Arithmetic, y: Arithmetic) -> bool:
    """Whether two ciphertexts differ in their factors at most."""
    return x.a.node is y.a.node and x.b.node is y.b.node


def _signed(estimate: Estimate, sign: int) -> Estimate:
    return estimate if sign > 0 else Estimate.of(partial(noise.scaled, -1, 0.0), estimate)


def _product_estimate(params: CKKSParams, level: int, x: Arithmetic, y: Arithmetic, square: bool) -> Estimate:
    rounding, group = noise.rounding_variance(params.n), float(math.prod(params.levels[level].group))
    switching = (noise.switching_variance(params, level) + rounding) / group**2
    variance = noise.slot_variance(params, rounding + switching, params.levels[level - 1].scale)
    if square:
        return Estimate.of(partial(noise.square, y.factor / x.factor, variance), x.estimate)
    return Estimate.of(partial(noise.product, variance), x.estimate, y.estimate)


def check_keys(ctx: CKKSContext, ciphertext: Arithmetic) -> None:
    """Refuse a ciphertext of other keys than the context's."""
    if ciphertext.key_id != ctx.key_id:
        raise ValueError(
            f"the ciphertext belongs to key set {ciphertext.key_id}, and the active context {ctx!r} has key set {ctx.key_id}; "
            "work inside `with` of the context that it was encrypted under"
        )


def _nominal_level(ctx: CKKSContext, operand: Arithmetic | Plaintext) -> int:
    """The highest level at which the operand can have the level's scale."""
    return operand.level - (operand.scale != ctx.params.levels[operand.level].scale)


def _exhausted(ctx: CKKSContext, ciphertext: Arithmetic, what: str) -> NoReturn:
    depth = ctx.params.depth
    file, line = user_line()
    raise ValueError(
        f"no level is left for the {what} at {place_name(file)}:{line}: the parameters have {depth} level{'s' * (depth != 1)}, "
        f"and with it the computation needs {depth - ciphertext.level + 1}; take parameters of more depth, as "
        "CKKSParams.build(depth=...), or multiply less often in a row"
    )


def _needs_level(ctx: CKKSContext, ciphertext: Arithmetic, what: str) -> None:
    if ciphertext.level == 0:
        _exhausted(ctx, ciphertext, what)


def _operand(ctx: CKKSContext, ciphertext: Arithmetic, other: Any) -> Any:
    """The other operand as a ciphertext, a plaintext that is no constant, or a number; `NotImplemented` for anything else."""
    check_keys(ctx, ciphertext)
    if isinstance(other, Arithmetic):
        if other.key_id != ciphertext.key_id:
            raise ValueError(
                f"the ciphertexts belong to two key sets, {ciphertext.key_id} and {other.key_id}, and nothing can be computed with "
                "both; encrypt them inside one context"
            )
        return other
    if isinstance(other, Plaintext):
        levels = ctx.params.levels
        if not other.level < len(levels) or other.poly.ring != levels[other.level].ring:
            raise ValueError(f"{other!r} was encoded under other parameters than {ctx.params!r}; encode it inside this context")
        return other if other.value is None else other.value
    if isinstance(other, bool | np.bool_):
        return NotImplemented
    if isinstance(other, numbers.Integral):
        return int(other)
    if isinstance(other, numbers.Real):
        return real_number(other)
    if isinstance(other, numbers.Complex):
        number = complex(other)
        real, imaginary = real_number(number.real), real_number(number.imag)
        return number if imaginary else real
    if isinstance(other, np.ndarray | list | tuple):
        slots = as_slots(other, ctx.params.slot_count)
        bound = float(np.max(np.abs(slots), initial=0.0))
        level = max(_nominal_level(ctx, ciphertext), 0)
        return encode_slots(ctx, slots, ctx.params.levels[level], bound)
    return NotImplemented


def _constant(ctx: CKKSContext, value: complex, scale: float, like: Poly) -> Poly | int:
    """The polynomial round(real * scale) + round(imaginary * scale) * X^(n/2); an int without the second part."""
    real, imaginary = round(value.real * scale), round(value.imag * scale)
    if not imaginary:
        return real
    coefficients = [0] * ctx.params.n
    coefficients[0], coefficients[ctx.params.n // 2] = real, imaginary
    return Poly(coefficients, like.ring, like.device)
