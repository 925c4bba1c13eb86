"""Samplers: who is in a batch, what it costs, and what is public about it."""

import math

import numpy as np
import pytest

from sottovoce.privacy.entropy import OperatingSystemEntropy
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.privacy.sampling import FullBatch, Poisson, SinglePass
from sottovoce.testing import ReplayableEntropy

OS = OperatingSystemEntropy()


class Scripted:
    """Words chosen by the test."""

    def __init__(self, words: list[int]) -> None:
        self._words = np.array(words, dtype=np.uint64)

    def fork(self, *purpose: str | int) -> "Scripted":
        return self

    def words(self, count: int) -> np.ndarray:
        return self._words[:count]


def test_membership_is_a_word_below_the_rounded_down_threshold():
    threshold = math.floor(0.3 * 2**64)  # exact: 0.3 is a dyadic float
    sampler = Poisson(rate=0.3, steps=1, records=4)
    drawn = next(sampler.batches(4, Scripted([threshold, threshold - 1, 0, 2**64 - 1])))
    assert drawn.tolist() == [1, 2]


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_poisson_batch_sizes_are_binomial(rate: float):
    """False alarm 1e-6: the total of 400 draws of 1,000 records within 4.9 standard deviations, and the spread."""
    sizes = np.array([len(b) for b in Poisson(rate=rate, steps=400, records=1000).batches(1000, OS)])
    deviation = math.sqrt(400 * 1000 * rate * (1 - rate))
    assert abs(sizes.sum() - 400_000 * rate) < 4.9 * deviation
    variance = 1000 * rate * (1 - rate)
    assert abs(sizes.var() / variance - 1) < 4.9 * math.sqrt(2 / 399) + 0.05


def test_rate_one_takes_everybody_and_a_tiny_rate_gives_empty_batches():
    assert len(next(Poisson(rate=1.0, steps=1, records=70).batches(70, OS))) == 70
    sizes = [len(b) for b in Poisson(rate=1e-6, steps=50, records=10).batches(10, OS)]
    assert sizes == [0] * 50


def test_a_record_s_membership_does_not_depend_on_how_many_others_there_are():
    """What add/remove neighbours need: the same words decide for the same records."""
    few = list(Poisson(rate=0.2, steps=5, records=100).batches(100, ReplayableEntropy("k")))
    many = list(Poisson(rate=0.2, steps=5, records=100).batches(101, ReplayableEntropy("k")))
    for a, b in zip(few, many, strict=True):
        assert a.tolist() == [i for i in b.tolist() if i < 100]


def test_draws_longer_than_a_chunk_have_no_seam(monkeypatch: pytest.MonkeyPatch):
    whole = next(Poisson(rate=0.5, steps=1, records=999).batches(999, ReplayableEntropy("seam")))
    monkeypatch.setattr("sottovoce.privacy.sampling._CHUNK", 100)
    pieces = next(Poisson(rate=0.5, steps=1, records=999).batches(999, ReplayableEntropy("seam")))
    assert whole.tolist() == pieces.tolist()


def test_single_pass_uses_every_record_at_most_once():
    sampler = SinglePass(sizes=(10, 3, 20))
    blocks = list(sampler.batches(40, OS))
    assert [len(block) for block in blocks] == [10, 3, 20]
    everyone = np.concatenate(blocks)
    assert len(set(everyone.tolist())) == 33 and everyone.max() < 40
    assert [sampler.divisor(step) for step in range(3)] == [10.0, 3.0, 20.0]


def test_single_pass_shuffles():
    """A false alarm needs a shuffle of 200 records to put the first hundred first: below 1e-58."""
    first = next(SinglePass(sizes=(100, 100)).batches(200, OS))
    assert set(first.tolist()) != set(range(100))


def test_a_single_pass_that_needs_more_records_than_there_are_is_refused():
    with pytest.raises(ConfigurationError, match="needs 33 records and the data set has 32"):
        SinglePass(sizes=(10, 3, 20)).check(32)


def test_full_batch_sees_everybody_every_time():
    assert [len(batch) for batch in FullBatch(steps=3, records=7).batches(7, OS)] == [7, 7, 7]


def test_the_divisor_is_the_expected_size_and_never_the_realised_one():
    sampler = Poisson(rate=0.25, steps=3, records=1000)
    assert [sampler.divisor(step) for step in range(3)] == [250.0] * 3


def test_events_say_what_the_sampler_does():
    poisson = Poisson(rate=0.25, steps=3, records=8).event(1.5)
    assert (poisson.sampling, poisson.rate, poisson.steps, poisson.noise_multiplier) == ("poisson", 0.25, 3, 1.5)
    assert SinglePass(sizes=(2, 2)).event(1.5).sampling == "single-pass"
    assert FullBatch(steps=9, records=8).event(1.5).sampling == "full-batch"


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0001, math.nan])
def test_rates_outside_the_unit_interval_are_refused(rate: float):
    with pytest.raises(ConfigurationError, match="rate"):
        Poisson(rate=rate, steps=1, records=10)


def test_no_steps_and_no_records_are_refused():
    for make in (
        lambda: Poisson(rate=0.1, steps=0, records=10),
        lambda: SinglePass(sizes=()),
        lambda: SinglePass(sizes=(3, 0)),
        lambda: FullBatch(steps=0, records=3),
        lambda: FullBatch(steps=2, records=0),
    ):
        with pytest.raises(ConfigurationError):
            make()


def test_production_entropy_comes_from_the_operating_system(monkeypatch: pytest.MonkeyPatch):
    """Whatever seeds the process sets, two draws differ. False alarm: 2^-1000."""
    asked: list[int] = []
    import os

    real = os.urandom
    monkeypatch.setattr(os, "urandom", lambda size: asked.append(size) or real(size))
    np.random.seed(0)
    first = next(Poisson(rate=0.5, steps=1, records=1000).batches(1000, OS))
    np.random.seed(0)
    second = next(Poisson(rate=0.5, steps=1, records=1000).batches(1000, OS))
    assert first.tolist() != second.tolist()
    assert sum(asked) == 2 * 8000
