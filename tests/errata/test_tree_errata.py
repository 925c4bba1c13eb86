"""Counterexamples to the tree mechanisms as printed.

Z24: Zhang et al. 2024, "Private zeroth-order nonsmooth nonconvex optimization".
I24: "Improved sample complexity for private nonsmooth nonconvex optimization" (2024).
"""

import math

import numpy as np
import pytest

from sottovoce.privacy.entropy import OperatingSystemEntropy
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.tree import prefix_sums, sensitivity

Node = tuple[int, int]


def i24_node(t: int, period: int, *, printed_condition: bool) -> list[Node]:
    """I24 Algorithm 1, lines 9 to 17, with line 14 as printed (k' <= k) or as it must be (k' <= t)."""
    top = math.ceil(math.log2(period))
    nodes: list[Node] = []
    covered = 0
    for i in range(1, top + 1):
        if covered >= t:
            break
        end = covered + 2 ** (top - i)
        if end <= (covered if printed_condition else t):
            nodes.append((covered + 1, end))
            covered = end
    return nodes


def test_z24_theorem_4_3_is_too_small_for_one_two_and_four_leaves():
    """sqrt(2 ln n) stands for the column norm; it is smaller than the norm exactly at n = 1, 2 and 4."""
    too_small = [n for n in range(1, 5000) if math.sqrt(2 * math.log(n)) < sensitivity("fenwick", [1.0] * n) - 1e-12]
    assert too_small == [1, 2, 4]
    assert math.sqrt(2 * math.log(1)) == 0  # no noise at all; ours refuses that
    with pytest.raises(ConfigurationError):
        prefix_sums("fenwick", length=1, width=1, scale=0.0, entropy=OperatingSystemEntropy())


def test_z24_own_count_of_nodes_exceeds_its_bound():
    """The proof counts ceil(log2 n) + 1 nodes for a record and bounds them by 2 ln n."""
    wrong = {n for n in range(1, 5000) if math.ceil(math.log2(n)) + 1 > 2 * math.log(n)}
    assert wrong == {*range(1, 8), *range(9, 13), *range(17, 21), 33}


def test_z24_remark_4_2_fails_for_the_first_prefix():
    """|NODE(t)| <= ceil(log2 t) gives no node for t = 1, which has one."""
    assert math.ceil(math.log2(1)) == 0
    assert [t for t in range(1, 5000) if t.bit_count() > math.ceil(math.log2(t))] == [1]


def test_i24_line_14_adds_no_noise_to_any_prefix():
    """k' = k + a power of two is never at most k: NODE is empty, so every prefix is released exactly."""
    for period in (2, 3, 8, 13, 64):
        assert all(not i24_node(t, period, printed_condition=True) for t in range(1, period + 1))


@pytest.mark.parametrize("period", [2, 4, 8, 16, 64, 1024])
def test_i24_with_line_14_mended_releases_the_last_increment_exactly(period: int):
    """The loop starts one level too low: NODE(S) = NODE(S - 1) for S = 2^h, so their difference has no noise."""
    last = i24_node(period, period, printed_condition=False)
    assert last == i24_node(period - 1, period, printed_condition=False)
    assert last[-1][1] == period - 1  # leaf S is in no node


@pytest.mark.parametrize("factorisation", ["fenwick", "toeplitz"])
@pytest.mark.parametrize("period", [1, 2, 4, 8, 16, 64])
def test_here_every_increment_has_noise(factorisation, period: int):
    """All 32 coordinates of an increment are zero with probability below 1e-180 at scale 1e6."""
    sums = prefix_sums(factorisation, length=period, width=32, scale=1e6, entropy=OperatingSystemEntropy())
    prefixes = np.array([sums.add(np.zeros(32, dtype=np.int64)) for _ in range(period)])
    assert np.all(np.any(np.diff(prefixes, axis=0, prepend=0), axis=1))


def test_i24_index_modulo_the_period_gives_the_last_prefix_no_noise():
    """TREE(t mod S) at t = S is TREE(0), an empty sum; the local index is ((t - 1) mod S) + 1."""
    period = 8
    assert i24_node(period % period, period, printed_condition=False) == []
    assert [(t - 1) % period + 1 for t in (1, period, period + 1)] == [1, period, 1]
    # And for S = 1 the root is never recognised: "t mod 1 = 1" does not happen.
    assert all(t % 1 != 1 for t in range(1, 100))


def test_i24_proposition_2_5_adds_no_noise_to_one_leaf():
    """sigma = 4 s sqrt(ln S ln(1/delta)) / epsilon is 0 at S = 1; the needed norm is 1."""
    assert 4 * math.sqrt(math.log(1) * math.log(1e6)) / 1.0 == 0
    assert sensitivity("fenwick", [1.0]) == 1


def test_i24_lemma_3_4_without_the_logarithm_is_too_small_for_long_periods():
    """Even with Proposition 2.5's constant 4: at epsilon = 1, delta = 1e-6 it is too small from S = 2^12 on.

    A Gaussian release is exactly (1, 1e-6)-DP at mu = 0.23670 (Balle and Wang 2018; Dong, Roth and Su 2022).
    """
    claimed = 4 * math.sqrt(math.log(1e6))
    mu = 0.23670
    assert sensitivity("fenwick", [1.0] * 2**11) / mu < claimed < sensitivity("fenwick", [1.0] * 2**12) / mu
