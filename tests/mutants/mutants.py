"""Seeded bugs: each changes exactly one line of ``src/`` and names a test that fails because of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One bug.

    Attributes:
        name: what goes wrong.
        file: which file of ``src/sottovoce``.
        line: the line, without its indentation; it occurs once in the file.
        instead: what stands there in the mutant.
        killer: the test that notices.
    """

    name: str
    file: str
    line: str
    instead: str
    killer: str


CURATOR, CLIP = "privacy/curator.py", "privacy/clip.py"
TEST_CURATOR, TEST_CLIP = "tests/privacy/test_curator.py::", "tests/privacy/test_clip.py::"
OS_NOISE = 'noise = self._entropy.fork("noise", step, len(self._taken))'
REPLAYABLE = "import sottovoce.testing; noise = sottovoce.testing.ReplayableEntropy('0').fork(step)"
ADD_NOISE = "sums = add_noise(sums, sigma * _UP / grid, noise)"
SIGMA = "sigma = self.noise_multiplier * stage.relative_noise * bound / math.sqrt(share)"
QUOTIENT = "return torch.as_tensor(sums.astype(np.float64)) * grid / "
CLIPPED = "values.mul_(torch.where(kept, _factors(norms, largest, scale), 0.0)[:, None]).trunc_()"
WORDS = "return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)"
BASE_EXCEPTION = "except BaseException:  # some libraries' errors derive from it"

MUTANTS = [
    Mutant("noise halved", CURATOR, ADD_NOISE, ADD_NOISE.replace("grid,", "grid / 2,"),
           TEST_CURATOR + "test_the_noise_has_the_calibrated_standard_deviation"),
    Mutant("noise left out", CURATOR, ADD_NOISE, "sums = sums + 0 * len(noise.words(1))",
           TEST_CURATOR + "test_an_empty_batch_releases_pure_noise"),
    Mutant("share ignored", CURATOR, SIGMA, SIGMA.replace(" / math.sqrt(share)", ""),
           TEST_CURATOR + "test_a_share_raises_the_noise_and_two_shares_cost_what_one_release_does"),
    Mutant("divisor by the realised batch", CURATOR,
           QUOTIENT + "stage.sampler.divisor(self._steps[step][1])", QUOTIENT + "max(1, len(self._indices))",
           TEST_CURATOR + "test_an_answer_without_noise_is_the_mean_over_the_public_divisor"),
    Mutant("noise from a seeded generator, as that of the directions is", CURATOR, OS_NOISE, REPLAYABLE,
           "tests/test_session.py::test_noise_and_batches_cannot_be_seeded"),
    Mutant("plan not enforced", CURATOR, "if share not in left:", "if share not in (*left, share):",
           TEST_CURATOR + "test_a_release_that_is_not_in_the_plan_raises_before_it_looks_at_data"),
    Mutant("an old batch still answers", CURATOR, "if self.closed or step != self._step:", "if self.closed:",
           TEST_CURATOR + "test_an_old_batch_and_a_closed_run_answer_nothing"),
    Mutant("release without a live lease", CURATOR,
           "if self._reservation is None or not self._reservation.covers(step):", "if self._reservation is None:",
           TEST_CURATOR + "test_there_is_no_batch_without_a_reservation_and_no_release_without_a_lease"),
    Mutant("lease advanced after the release", CURATOR, "if step >= self._reservation.mark:",
           "if step > self._reservation.mark:", TEST_CURATOR + "test_the_lease_is_durable_before_the_batch_exists"),
    Mutant("a named data set accepts a testing switch", CURATOR,
           "if dataset is not None and self._switches.active:", "if dataset == '' and self._switches.active:",
           TEST_CURATOR + "test_a_named_data_set_refuses_the_testing_switches"),
    Mutant("clip dropped", CLIP, CLIPPED,
           "values.mul_(torch.where(kept, scale, 0.0)[:, None]).trunc_(); return values",
           TEST_CLIP + "test_no_row_exceeds_its_bound_exactly"),
    Mutant("float norm instead of the integer norm", CLIP,
           "too_long = torch.nonzero(_squared_norms(values) > largest**2)[:, 0]",
           "too_long = torch.nonzero(_squared_norms(values.float()).double() > largest**2)[:, 0]",
           TEST_CLIP + "test_the_integer_norm_has_the_last_word"),
    Mutant("rounding away from zero", CLIP, CLIPPED,
           CLIPPED.replace(".trunc_()", ".add_(values.sign().mul(0.999999)).trunc_()"),
           TEST_CLIP + "test_rounding_is_towards_zero"),
    Mutant("mean instead of sum", CLIP,
           "total.addmv_(integers.T, ones[: len(part)])  # the sum of the rows, added in one pass",
           "total.addmv_(integers.T, ones[: len(part)] / len(part)).trunc_()",
           TEST_CLIP + "test_the_sum_is_a_sum_and_exact_in_any_order"),
    Mutant("a row that is not finite is kept", CLIP, "kept = kept & torch.isfinite(norms)",
           "kept = kept & (norms >= 0)",
           TEST_CLIP + "test_rows_that_are_not_finite_or_not_kept_count_as_zero"),
    Mutant("padding counts", "privacy/evaluation.py", "return together, kept", "return together, torch.ones_like(kept)",
           TEST_CURATOR + "test_padding_contributes_nothing"),
    Mutant("a raising record raises", "privacy/evaluation.py", BASE_EXCEPTION,
           "except ZeroDivisionError:",
           "tests/guarantees/test_bad_records.py::"
           "test_a_bad_record_cannot_be_told_from_one_that_contributes_zero[DPZero-raises-full-batch]"),
    Mutant("a warning speaks of a record", "privacy/quiet.py", 'warnings.simplefilter("ignore")',
           'warnings.simplefilter("default")',
           "tests/guarantees/test_bad_records.py::"
           "test_a_bad_record_cannot_be_told_from_one_that_contributes_zero[DPZero-warns-full-batch]"),
    Mutant("the probe runs on private records", "privacy/evaluation.py",
           "answer: Any = query(self._records.examples(self._rows, self._device))",
           "answer: Any = query(self._records.batch(np.arange(1), self._rows, self._device)[0])",
           TEST_CURATOR + "test_rehearsal_enforces_the_plan_and_reads_no_record"),
    Mutant("shuffled batches accounted as Poisson", "privacy/sampling.py",
           'yield self._draw(records, threshold, entropy.fork("membership", step))',
           'yield np.argsort(entropy.fork("membership", step).words(records))[: round(self.rate * records)]',
           "tests/privacy/test_sampling.py::test_poisson_batch_sizes_are_binomial"),
    Mutant("membership from a seeded generator", "privacy/entropy.py", WORDS,
           "return np.random.SFC64(count).random_raw(count)",
           "tests/privacy/test_sampling.py::test_production_entropy_comes_from_the_operating_system"),
    Mutant("blocks overlap", "privacy/sampling.py", "start += size", "start += size - 1",
           "tests/privacy/test_sampling.py::test_single_pass_uses_every_record_at_most_once"),
    Mutant("an event with another relation's sensitivity", "privacy/accounting.py",
           "full = gaussian_epsilon(releases.full_mu * (1 + replace), delta)",
           "full = gaussian_epsilon(releases.full_mu, delta)",
           TEST_CURATOR + "test_a_replace_one_guarantee_needs_twice_the_noise_of_zero_out"),
    Mutant("a running sum is decoded from the records' sums", "privacy/tree.py",
           "known = encoder[:-1] @ self._decoded[: prefix - 1]", "known = encoder[:-1] @ self._leaves[: prefix - 1]",
           "tests/privacy/test_tree.py::test_what_is_released_is_a_function_of_the_encoded_release"),
    Mutant("a leaf whose answer failed gives its place to the next", "privacy/window.py",
           "while self._sums.prefix < self._leaf:", "while self._sums.prefix < 0:",
           TEST_CURATOR + "test_a_leaf_that_was_skipped_or_failed_keeps_its_place"),
    Mutant("what failed inside the room speaks", CURATOR, "raise failure", "return answer(*arguments)",
           "tests/guarantees/test_escapes.py::"
           "test_what_fails_inside_the_room_leaves_without_words_cause_or_variables"),
    Mutant("the first record decides what form all others must have", "inputs.py",
           "return Records(private, _first_of(public) if example is None else as_tree(example), as_tree)",
           "return Records(private, map_leaves(torch.zeros_like, as_tree(private[0])), as_tree)",
           "tests/guarantees/test_item_forms.py::"
           "test_the_type_of_one_record_does_not_decide_whether_others_count[float-an integer]"),
    Mutant("items draw from one stream", "privacy/records.py",
           'with quiet(torch.device("cpu"), seed + index):  # what one item draws, no other item feels',
           "with __import__('contextlib').nullcontext():",
           "tests/guarantees/test_escapes.py::test_what_an_item_draws_no_other_item_feels"),
    Mutant("the draws of user code start from a public number", CURATOR,
           'return int(self._entropy.fork("draws", self._step, len(self._taken)).words(1)[0] >> np.uint64(2))',
           "return self._step", "tests/guarantees/test_escapes.py::test_the_draws_start_from_a_secret"),
    Mutant("what a loss stores in the model stays there", "objective/evaluation.py", "state.put_back()", "pass",
           "tests/objective/test_probe.py::"
           "test_replaced_buffers_frozen_parameters_and_new_attributes_are_put_back_too"),
    Mutant("a log record speaks of a record", "privacy/quiet.py",
           "logging.disable(2**31)  # of other threads too, for the time", "pass",
           "tests/guarantees/test_escapes.py::test_what_a_loss_logs_is_not_heard"),
    Mutant("only the example is asked whether records mix", "objective/probe.py",
           "objective.losses_from_seed, objective, [example, *_others(objective, example)], None, batch_size",
           "objective.losses_from_seed, objective, [example], None, batch_size",
           "tests/objective/test_probe.py::"
           "test_a_scale_taken_from_the_batch_is_found_though_the_example_is_zeros"),
    Mutant("a private gradient's writes stay in the parameters", "objective/module.py",
           "with evaluating(self.module, self.loss, trained=True):", "with evaluating(self.module, self.loss):",
           "tests/objective/test_probe.py::"
           "test_what_a_private_record_makes_a_loss_write_into_the_model_is_undone"),
    Mutant("mu beyond its delta by rounding", "privacy/accounting.py",
           "return math.log((first - second + error) / 2) - near * near / 2 + 2.0**-52 * (abs(near) + far) ** 2",
           "return math.log((first - second) / 2) - near * near / 2",
           "tests/privacy/test_accounting.py::"
           "test_the_largest_mu_keeps_delta_also_where_rounding_is_all_there_is"),
    Mutant("a filter that forgets what is spent", "privacy/ledger.py",
           'left = Fraction(limit) ** 2 - _squares(others)', "left = Fraction(limit) ** 2",
           "tests/privacy/test_ledger.py"),
]  # fmt: skip
"""The list that maps each bug to the test that fails."""
