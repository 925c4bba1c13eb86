"""Exact Gaussian noise on a dyadic grid.

Sums that are released are integers (multiples of a public grid), and what is added to them is
``floor(scale * Z + 1/2)`` for a true normal variate Z. Because rounding by ``floor(x + 1/2)`` commutes with
integer shifts, ``sum + round(N) = round(sum + N)``: the release is post-processing of the ideal, continuous
Gaussian mechanism, so its accountants apply verbatim and the attacks on floating-point noise (Mironov 2012;
Haney et al. 2022) find nothing that depends on the private value.

The sampler is the Box-Muller transform of two ideal uniforms whose binary digits are drawn when they are
needed. The first 64 digits of each suffice for a float64 evaluation that is within `ERROR_BOUND` of the ideal
normal; when that does not decide the rounding, more digits are drawn and the same uniforms are evaluated
again at a higher precision, until it is decided. So no approximation is left in the distribution.

The proof of `ERROR_BOUND`, for ``2**-20 <= U1 < 1 - 2**-20``, hence 2**-9.5 < R < 5.27 with
R = sqrt(-2 log U1). Assumed: IEEE arithmetic and square root; log, sin and cos within 4 ulp.

- The float u1 differs from U1 by at most ``2**-53 U1 + 2**-62`` (conversion, and the digits not looked at).
  As dR/dU1 = -1/(U1 R), R moves by at most 2**-53 / R + 2**-62 / (U1 R) < 2**-43.5 + 2**-44.3 < 2**-42.8.
- 4 ulp of the logarithm are 2**-50 relative, half of that after the root, whose own rounding is 2**-53:
  together less than 5.27 (2**-51 + 2**-53) < 2**-48.2.
- The angle, within [-pi, pi], is off by three roundings and the digits not looked at:
  3 pi 2**-53 + 2 pi 2**-64 < 2**-49.7; with 4 ulp of sine or cosine, at most 2**-50, it is 2**-48.8, which
  R magnifies to less than 2**-46.4.
- The product R cos is rounded once more: less than 2**-50.5.

The sum is below 0.65 * 2**-42.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import torch
from mpmath import libmp as _libmp  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from sottovoce.privacy.entropy import Entropy
from sottovoce.privacy.errors import ConfigurationError, PrivacyError

ERROR_BOUND = 2.0**-42
"""Bound on |float64 Box-Muller - ideal normal of the same (infinitely extended) uniforms| outside the tails."""

_FRACTION_BITS = 24
_TAIL = 2**44  # of 2**64: U1 below 2**-20 or at least 1 - 2**-20
_PAIRS = 2**13  # a chunk's arrays stay in the second-level cache
_LARGEST_SCALE = 2.0**62 / 9.5  # the smallest float u1 is 2**-64, and sqrt(-2 log 2**-64) < 9.42
_WORD = 64

libmp: Any = _libmp  # the bare functions: no context, so nobody's precision is read or changed
# mpmath's cache of constants is not safe while one thread raises its precision: raise it once, here.
libmp.ln2_fixed(2048)
libmp.pi_fixed(2048)


def grid_for(bound: float) -> float:
    """The grid of sums whose terms have norm at most ``bound``: 2**(floor(log2 bound) - 24).

    It depends on the public bound alone, and ``bound / grid`` is in [2**24, 2**25).
    """
    grid = math.ldexp(1.0, math.frexp(bound)[1] - 1 - _FRACTION_BITS) if 0 < bound < math.inf else 0.0
    if grid < sys.float_info.min:
        raise ConfigurationError(f"the bound is {bound!r}; it must be positive, finite and at least 1e-300")
    return grid


def rounded_normals(count: int, scale: float, entropy: Entropy) -> NDArray[np.int64]:
    """``count`` independent draws of ``floor(scale * Z + 1/2)``, Z standard normal, exactly distributed.

    Exact if the words of ``entropy`` are uniform and the assumptions of this module's docstring hold (and
    mpmath loses at most 16 bits of the precision it is asked for). ``scale`` is the standard deviation in
    cells of the grid. How long a call takes depends on the noise, never on what it is added to.
    """
    if not 0 < scale < _LARGEST_SCALE:
        needed = f"it must be positive and below {_LARGEST_SCALE:.3g}, so that the noise fits into 64-bit integers"
        raise ConfigurationError(f"the noise's standard deviation is {scale!r} cells of the grid; {needed}")
    if count < 0:
        raise ConfigurationError(f"{count} draws were asked for; the count must not be negative")
    rounded = np.empty(count + count % 2, dtype=np.int64)
    for start in range(0, count, 2 * _PAIRS):
        chunk = rounded[start : start + 2 * _PAIRS].reshape(2, -1)
        _fill(chunk, float(scale), entropy.words(chunk.size).reshape(2, -1), entropy)
    return rounded[:count]


def add_noise(sums: NDArray[np.int64], scale: float, entropy: Entropy) -> NDArray[np.int64]:
    """``floor(sums + scale * Z + 1/2)``, of any shape: the ideal mechanism's answer, rounded to the grid.

    Beyond 64 bits it wraps round, which is post-processing too and, unlike an error, reveals nothing more.
    """
    if sums.dtype != np.int64:
        raise ConfigurationError(f"sums are of type {sums.dtype}; they must be 64-bit integers (cells of the grid)")
    noise = rounded_normals(sums.size, scale, entropy).reshape(sums.shape)
    noise += sums
    return noise


def _fill(out: NDArray[np.int64], scale: float, words: NDArray[np.uint64], entropy: Entropy) -> None:
    """Rounds the normals of the two rows of ``words`` into the two rows of ``out``, exactly."""
    scaled = _box_muller(words)
    scaled *= scale
    nearest = np.rint(scaled)  # differs from floor(x + 1/2) at ties only, and those are decided exactly
    np.copyto(out, nearest, casting="unsafe")
    # The product's own rounding, |scale * Z| 2**-53, and the subtraction's are within the second terms.
    margin = scale * (ERROR_BOUND + 2.0**-50) + 2.0**-52
    np.subtract(scaled, nearest, out=nearest)
    near = np.abs(nearest, out=nearest) >= 0.5 - margin
    tail = words[0] + np.uint64(_TAIL) < np.uint64(2 * _TAIL)  # both ends at once: the addition wraps round
    for index in np.flatnonzero(near[0] | near[1] | tail):
        exact = _exact_pair(int(words[0, index]), int(words[1, index]), scale, entropy)
        # Where the bound holds, each recomputed draw also audits it on the machine at hand.
        errors = [abs(x - float(y)) for x, y in zip(exact, scaled[:, index], strict=True)]
        if not tail[index] and max(errors) > 0.5 + margin:
            raise PrivacyError("log, sin or cos of this numpy and torch are not accurate enough for exact noise")
        out[:, index] = [_wrapped(x) for x in exact]


def _box_muller(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The normals (R cos, R sin) of the uniforms whose first digits are ``words[0]`` and ``words[1]``."""
    # Signed conversions are several times faster; the 64th digit is far below the bound.
    radius = (words[0] >> np.uint64(1)).view(np.int64).astype(np.float64)
    radius += 0.5
    radius *= 2.0**-63
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    # Read as signed, the second uniform is in [-1/2, 1/2): the same angle, and a smaller one.
    angle = words[1].view(np.int64) * (2 * math.pi / 2.0**_WORD)
    shared = torch.as_tensor(angle, device="cpu")  # torch's sine is three times faster than numpy's
    normals = np.empty(words.shape)
    np.multiply(torch.cos(shared).numpy(), radius, out=normals[0])
    np.multiply(torch.sin(shared).numpy(), radius, out=normals[1])
    return normals


def _exact_pair(word1: int, word2: int, scale: float, entropy: Entropy) -> tuple[int, int]:
    """``floor(scale * Z + 1/2)`` for both normals of a pair, from as many further digits as that takes.

    All numbers are integers in units of 2**-precision, and every step keeps an interval that contains the
    ideal value for every possible continuation of the digits.
    """
    length = _WORD
    while True:
        more = entropy.words(2)
        word1, word2, length = word1 << _WORD | int(more[0]), word2 << _WORD | int(more[1]), length + _WORD
        if word1 == 0:  # the logarithm has no bound yet
            continue
        precision = length + 32
        slack = 2**16  # what mpmath may err; it claims a few units
        logarithm = _fixed(libmp.mpf_log(libmp.from_man_exp(word1, -length), precision), precision)
        # log((w + 1) / w) <= 1 / w bounds the effect of all digits to come.
        low_square = -2 * logarithm - slack - (2 << precision) // word1 - 1
        low_radius = math.isqrt(max(low_square, 0) << precision)
        high_radius = math.isqrt((-2 * logarithm + slack) << precision) + 1
        turn = libmp.from_man_exp(2 * word2, -length)
        results: list[int] = []
        for value in libmp.mpf_cos_sin_pi(turn, precision):
            centre = _fixed(value, precision)
            width = slack + (7 << (precision - length))  # 2 pi < 7
            products = [r * (centre + w) for r in (low_radius, high_radius) for w in (-width, width)]
            low, high = (_floor_half_up(x, 2 * precision, scale) for x in (min(products), max(products)))
            if low == high:
                results.append(low)
        if len(results) == 2:
            return results[0], results[1]


def _fixed(value: Any, precision: int) -> int:
    return int(libmp.to_fixed(value, precision))


def _floor_half_up(value: int, bits: int, scale: float) -> int:
    """``floor(scale * value / 2**bits + 1/2)``, in exact rational arithmetic."""
    numerator, denominator = scale.as_integer_ratio()
    unit = denominator << bits
    return (2 * numerator * value + unit) // (2 * unit)


def _wrapped(value: int) -> int:
    """Into 64 bits; |Z| > 19, which happens once in 10**80 draws, can exceed them."""
    return (value + 2**63) % 2**64 - 2**63
