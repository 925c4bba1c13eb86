"""The methods that use public data, against what their papers say, and against steps computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from quadratic import PlainBatch, Point, drawn, half_squares, moment
from torch import Tensor

import sottovoce as sv
from sottovoce.methods.gep import Basis
from sottovoce.objective.directions import Key, held
from sottovoce.privacy import accounting
from sottovoce.privacy.events import Event
from sottovoce.queries import losses_along

BUDGET = sv.Budget(epsilon=1.0, delta=1e-3)
PUBLIC_METHODS: dict[str, Any] = {
    "PazoM": sv.PazoM(lr=0.1, public_batch=4),
    "PazoP": sv.PazoP(lr=0.1, subspace=2, public_batch=4),
    "PazoS": sv.PazoS(lr=0.1, public_batch=4),
    "DPMD": sv.DPMD(lr=0.1, public_batch=4),
    "DopeSGD": sv.DopeSGD(lr=0.1, public_batch=4),
    "GEP": sv.GEP(lr=0.1, bases=3, groups=1, public_batch=4),
}


def session(method: Any, private: Any, public: Tensor | None, **options: Any) -> sv.Session:
    settings = {"sampling": "full-batch", "steps": 2} | options
    return sv.Session(
        Point(torch.zeros(3)), half_squares, private=private, public=public, method=method,
        budget=BUDGET, **settings,
    )  # fmt: skip


# --- PAZO-M, PAZO-P, PAZO-S: their means, and the choice --------------------------------------------------------


def test_pazo_m_s_private_part_is_the_gradient_over_sqrt_d_in_the_mean():
    """40,000 directions in 9 dimensions; each coordinate of the mean within 5.5 standard errors (false alarm 4e-7)."""
    d, count = 9, 40_000
    records, start = drawn(20, d), drawn(d, seed=1)
    method = sv.PazoM(lr=1.0, mix=0.0, queries=count, public_batch=1)
    estimate = method.step(PlainBatch(records), moment(start, drawn(3, d))).dense().double()  # pyright: ignore
    gradient = (start - records.mean(dim=0)).double()
    # A coordinate of sqrt(d) |g|^-1 ... u (g.u), u on the sphere of radius d^(1/4), has a deviation of at most |g|.
    error = 5.5 * float(gradient.norm()) / math.sqrt(count)
    assert float((estimate - gradient / math.sqrt(d)).abs().max()) < error


def test_pazo_m_s_private_part_is_as_long_as_the_gradient():
    """Root mean square length over 2,000 single directions in 50 dimensions, within 10 % (5.5 standard errors: 8 %)."""
    d = 50
    records, start = drawn(20, d), drawn(d, seed=1)
    gradient = float((start - records.mean(dim=0)).norm())
    at = moment(start, drawn(3, d))
    squares = [
        float(
            sv.PazoM(lr=1.0, mix=0.0, public_batch=1)
            .step(PlainBatch(records), moment(start, drawn(3, d), seed=seed))  # pyright: ignore
            .dense()
            .square()
            .sum()
        )
        for seed in range(2000)
    ]
    assert at.public.count == 3
    assert math.sqrt(sum(squares) / len(squares)) / gradient == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("mix", [0.0, 0.25, 1.0])
def test_pazo_m_mixes_the_public_gradient_in(mix: float):
    records, public, start = drawn(20, 4), drawn(6, 4, seed=2), drawn(4, seed=1)
    method = sv.PazoM(lr=1.0, mix=mix, public_batch=6)
    at = moment(start, public)
    whole = method.step(PlainBatch(records), at).dense()  # pyright: ignore
    alone = sv.PazoM(lr=1.0, mix=0.0, public_batch=6).step(PlainBatch(records), at).dense()  # pyright: ignore
    assert torch.allclose(whole, mix * (start - public.mean(dim=0)) + (1 - mix) * alone, atol=1e-6)


@pytest.mark.parametrize("rank", [1, 3])
def test_pazo_p_averages_to_the_projection_of_the_gradient(rank: int):
    """30,000 directions in the span of 3 public gradients, of which 3 - rank repeat another; 5.5 standard errors."""
    d, count = 8, 30_000
    records, start = drawn(20, d), drawn(d, seed=1)
    public = drawn(3, d, seed=2)
    if rank == 1:
        public[:] = public[0]
    method = sv.PazoP(lr=1.0, subspace=3, queries=count, public_batch=1)
    at = moment(start, public, seed=5)
    chosen = torch.stack([at.public.gradient(at.key.fold("public", j), 1) for j in range(3)]).double()
    left = torch.linalg.matrix_rank(chosen)
    estimate = method.step(PlainBatch(records), at).dense().double()  # pyright: ignore
    gradient = (start - records.mean(dim=0)).double()
    basis = torch.linalg.svd(chosen, full_matrices=False)[2][: int(left)]
    projection = basis.T @ (basis @ gradient)
    assert float((estimate - projection).norm()) < 5.5 * 3 * float(projection.norm()) / math.sqrt(count)


def test_pazo_p_with_normalised_gradients_averages_to_g_g_transposed():
    d, count = 8, 30_000
    records, start, public = drawn(20, d), drawn(d, seed=1), drawn(5, d, seed=2)
    at = moment(start, public)
    chosen = torch.stack([at.public.gradient(at.key.fold("public", j), 1) for j in range(3)]).double()
    unit = chosen / chosen.norm(dim=1, keepdim=True)
    method = sv.PazoP(lr=1.0, subspace=3, basis="normalised", queries=count, public_batch=1)
    estimate = method.step(PlainBatch(records), at).dense().double()  # pyright: ignore
    gradient = (start - records.mean(dim=0)).double()
    expected = unit.T @ (unit @ gradient)
    assert float((estimate - expected).norm()) < 5.5 * 3 * float(expected.norm()) / math.sqrt(count)


def test_pazo_p_s_directions_lie_in_the_span_and_on_the_sphere():
    at = moment(drawn(12, seed=1), drawn(99, 12, seed=2))
    batch = PlainBatch(drawn(5, 12))
    sv.PazoP(lr=1.0, subspace=4, queries=7, public_batch=2).step(batch, at)  # pyright: ignore
    (query, bound, share), *_ = batch.asked
    rows = torch.stack([query.directions.vector(j) for j in range(7)])
    chosen = torch.stack([at.public.gradient(at.key.fold("public", j), 2) for j in range(4)])
    assert torch.allclose(rows.norm(dim=1), torch.full((7,), 2.0), atol=1e-5)
    assert torch.linalg.matrix_rank(torch.cat([chosen, rows]), atol=1e-4) == 4
    assert (bound, share) == (1.0, 1.0)


@pytest.mark.parametrize("basis", ["orthonormal", "normalised"])
def test_pazo_p_stands_still_where_public_gradients_are_zero(basis: Any):
    start = drawn(4, seed=1)
    at = moment(start, start.repeat(3, 1))
    batch = PlainBatch(drawn(5, 4))
    estimate = sv.PazoP(lr=1.0, subspace=2, basis=basis, public_batch=2).step(batch, at)  # pyright: ignore
    assert batch.skipped and not batch.asked
    assert not estimate.dense().any()
    one_is_zero = torch.stack([start, drawn(4, seed=3)])
    for seed in range(8):
        at = moment(start, one_is_zero, seed=seed)
        found = sv.PazoP(lr=1.0, subspace=3, basis=basis, public_batch=1).step(PlainBatch(drawn(5, 4)), at)  # pyright: ignore
        assert torch.isfinite(found.dense()).all()


def test_pazo_s_picks_the_best_candidate_and_pays_for_both_questions_once():
    """Without noise the choice is the arg min of the mean loss after the step."""
    records, public, start = drawn(30, 5), drawn(9, 5, seed=2), drawn(5, seed=1)
    for seed in range(20):
        at = moment(start, public, seed=seed, rate=0.3)
        method = sv.PazoS(lr=0.3, candidates=4, clip=100.0, explore=0.5, public_batch=1)
        batch = PlainBatch(records)
        estimate = method.step(batch, at)  # pyright: ignore
        candidates = [at.public.gradient(at.key.fold("public", j), 1) for j in range(4)]
        losses = [float(half_squares(Point(start - 0.3 * g), records).mean().detach()) for g in candidates]
        last = float(estimate.released[4])
        if last < min(losses):
            noise = estimate.dense() - candidates[losses.index(min(losses))]
            assert 0 < float(noise.norm()) < 0.5 * 5
        else:
            assert torch.equal(estimate.dense(), candidates[losses.index(min(losses))])
        assert estimate.released[:4].tolist() == pytest.approx(losses, rel=1e-5)
        (_, bound, share), (_, last_bound, last_share) = batch.asked
        assert (bound, last_bound) == (200.0, 100.0)
        assert share + last_share == 1.0 and share == pytest.approx(0.8)
        # The noise of every loss: sqrt(k + 1) clip in units of the multiplier.
        assert bound / math.sqrt(share) == pytest.approx(math.sqrt(5) * 100)
        assert last_bound / math.sqrt(last_share) == pytest.approx(math.sqrt(5) * 100)


def test_pazo_s_clips_losses_to_zero_and_clip():
    at = moment(torch.zeros(2), drawn(3, 2), loss=lambda model, batch: batch[:, 0] + 0 * model.x.sum())
    batch = PlainBatch(torch.tensor([[-5.0, 0.0], [0.25, 0.0], [9.0, 0.0]]))
    sv.PazoS(lr=0.1, candidates=2, clip=0.5, public_batch=1).step(batch, at)  # pyright: ignore
    rows = batch.asked[0][0](batch.records)
    assert rows.tolist() == [[0.0, 0.0], [0.25, 0.25], [0.5, 0.5]]


def test_pazo_s_takes_a_loss_that_is_not_a_number_for_the_worst():
    def undefined_beyond(model: Any, batch: Any) -> Any:
        return torch.where(model.x.norm() > 1, torch.nan, 0.2 + 0 * batch[:, 0] + 0 * model.x.sum())

    at = moment(torch.zeros(2), drawn(3, 2), loss=undefined_beyond)
    gradients = torch.tensor([[100.0, 0.0], [0.1, 0.0]])
    ask = losses_along(at.objective, held(at.objective.parameters.layout, gradients), -1.0, limit=0.5)
    assert torch.allclose(ask(drawn(4, 2)), torch.tensor([[0.5, 0.2]], dtype=torch.float64).expand(4, 2), atol=1e-6)


def test_pazo_s_without_a_noisy_candidate_asks_once():
    at = moment(drawn(5, seed=1), drawn(9, 5, seed=2))
    method, batch = sv.PazoS(lr=0.3, candidates=4, clip=100.0, explore=0.0, public_batch=1), PlainBatch(drawn(30, 5))
    estimate = method.step(batch, at)  # pyright: ignore
    candidates = [at.public.gradient(at.key.fold("public", j), 1) for j in range(4)]
    assert torch.equal(estimate.dense(), candidates[int(estimate.released.argmin())])
    assert [(bound, share) for _, bound, share in batch.asked] == [(200.0, 1.0)]


# --- DPMD, DOPE-SGD and GEP on three parameters, by hand ---------------------------------------------------------


def clipped(rows: Tensor, clip: float) -> Tensor:
    return rows * torch.clamp(clip / rows.norm(dim=1, keepdim=True), max=1)


def steps_without_noise(method: Any, private: Tensor, public: Tensor, steps: int = 3) -> list[Tensor]:
    """The point after each step of a real session, without noise."""
    with sv.testing.no_noise():
        run = session(method, private, public, steps=steps)
        return [run.objective.module.x.detach().clone() for _ in run]  # pyright: ignore


PRIVATE, PUBLIC = drawn(40, 3), drawn(5, 3, seed=3) + 1


def test_dpmd_passes_from_the_private_to_the_public_gradient():
    x = torch.zeros(3)
    for t, found in enumerate(steps_without_noise(sv.DPMD(lr=0.5, clip=0.8, public_batch=5), PRIVATE, PUBLIC)):
        weight = math.cos(math.pi * t / 6)
        private, public = clipped(x - PRIVATE, 0.8).mean(dim=0), x - PUBLIC.mean(dim=0)
        x = x - 0.5 * (weight * private + (1 - weight) * public)
        assert torch.allclose(found, x, atol=1e-5)


def test_dope_sgd_clips_around_the_public_gradient():
    x = torch.zeros(3)
    for found in steps_without_noise(sv.DopeSGD(lr=0.5, clip=0.8, public_batch=5), PRIVATE, PUBLIC):
        public = x - PUBLIC.mean(dim=0)
        x = x - 0.5 * (public + clipped(x - PRIVATE - public, 0.8).mean(dim=0))
        assert torch.allclose(found, x, atol=1e-5)


def test_dope_sgd_divides_the_private_part_alone_by_the_public_size():
    """Under Poisson sampling the public gradient stays whole whatever the realised batch is."""
    with sv.testing.no_noise(), sv.testing.fixed_entropy("dope"):
        run = session(
            sv.DopeSGD(lr=0.5, clip=1e-6, public_batch=5), PRIVATE, PUBLIC, sampling="poisson", batch_size=4, steps=1
        )
        next(iter(run))
    moved = run.objective.module.x.detach()  # pyright: ignore
    assert torch.allclose(moved, 0.5 * PUBLIC.mean(dim=0), atol=1e-5)


def test_gep_splits_each_gradient_and_clips_the_parts():
    method = sv.GEP(lr=0.5, clip=0.7, residual_clip=0.3, bases=1, groups=1, public_batch=5, power_iterations=3)
    x = torch.zeros(3)
    for t, found in enumerate(steps_without_noise(method, PRIVATE, PUBLIC)):
        anchors = x - PUBLIC
        basis = Basis.of(anchors, method, Key(0).fold(t).fold("basis")).parts[0]
        assert torch.allclose(basis.T @ basis, torch.eye(1), atol=1e-6)
        rows = x - PRIVATE
        embedding = rows @ basis
        residual = rows - embedding @ basis.T
        x = x - 0.5 * ((clipped(embedding, 0.7) @ basis.T).mean(dim=0) + clipped(residual, 0.3).mean(dim=0))
        assert torch.allclose(found, x, atol=1e-5)


def test_gep_finds_the_leading_directions():
    generator = torch.Generator().manual_seed(0)
    strong = torch.linalg.qr(torch.randn(30, 2, generator=generator))[0]
    anchors = torch.randn(20, 2, generator=generator) * 10 @ strong.T + 0.01 * torch.randn(20, 30, generator=generator)
    method = sv.GEP(lr=0.1, bases=2, groups=1, public_batch=20, power_iterations=2)
    basis = Basis.of(anchors, method, Key(0))
    assert torch.allclose(basis.decode(basis.encode(strong.T)), strong.T, atol=1e-2)


def test_gep_shares_its_columns_among_groups():
    basis = Basis.of(drawn(12, 100), sv.GEP(lr=0.1, bases=12, groups=3, public_batch=12), Key(0))
    assert [part.shape for part in basis.parts] == [(34, 4), (33, 3), (33, 3)]
    rows = drawn(5, 100, seed=1)
    assert basis.encode(rows).shape == (5, basis.width) and basis.decode(basis.encode(rows)).shape == rows.shape


def test_gep_s_parts_have_the_noise_of_two_releases_whose_inverse_variances_add_up():
    """4,000 answers of pure noise: each part's variance is twice that of one release, within 5.5 standard errors."""
    method = sv.GEP(lr=0.0, clip=0.7, residual_clip=0.3, bases=1, groups=1, public_batch=5)
    start = torch.zeros(3)
    run = session(method, start.repeat(40, 1), PUBLIC, steps=2000)  # the gradient at the start is zero
    answers = torch.stack([step.released.double() for step in run])
    unit = run.noise_multiplier / 40 * math.sqrt(2)
    for part in (answers[:, :1], answers[:, 1:]):
        assert abs(float(part.square().mean()) / unit**2 - 1) < 5.5 * math.sqrt(2 / part.numel())


# --- accounting, plans, and what is refused --------------------------------------------------------------------


def test_epsilon_does_not_depend_on_queries_or_candidates():
    """The noise multiplier is that of DP-SGD's plan, by accounting made for one subsampled Gaussian a step."""
    methods = [
        *(sv.PazoM(lr=0.1, queries=q, public_batch=2) for q in (1, 5, 16)),
        *(sv.PazoP(lr=0.1, queries=q, subspace=k, public_batch=2) for q in (1, 5) for k in (1, 3)),
        *(sv.PazoS(lr=0.1, candidates=k, public_batch=2) for k in (1, 2, 3, 6, 10)),
        sv.GEP(lr=0.1, bases=2, groups=1, public_batch=2),
        sv.DPMD(lr=0.1, public_batch=2),
        sv.DopeSGD(lr=0.1, public_batch=2),
    ]
    runs = [session(m, PRIVATE, PUBLIC, sampling="poisson", batch_size=8, steps=30) for m in methods]
    plain = sv.DPSGD(lr=0.1)
    reference = session(plain, PRIVATE, None, sampling="poisson", batch_size=8, steps=30)
    assert {run.noise_multiplier for run in runs} == {reference.noise_multiplier}
    spent = accounting.epsilon(
        [Event(sampling="poisson", rate=0.2, noise_multiplier=reference.noise_multiplier, steps=30)], BUDGET.delta
    )
    for run in [*runs, reference]:
        for _ in run:
            pass
        assert run.epsilon() == pytest.approx(spent) and run.epsilon() <= BUDGET.epsilon


def test_epsilon_agrees_with_independent_accounting():
    """Opacus' accountant, which shares no code with ours, told nothing but one subsampled Gaussian a step."""
    from opacus.accountants import create_accountant

    for method in (sv.PazoM(lr=0.1, queries=5, public_batch=2), sv.PazoS(lr=0.1, candidates=6, public_batch=2)):
        run = session(method, PRIVATE, PUBLIC, sampling="poisson", batch_size=8, steps=30)
        for _ in run:
            pass
        accountant = create_accountant("prv")
        accountant.history = [(run.noise_multiplier, 0.2, 30)]
        upper = accountant.get_epsilon(delta=BUDGET.delta, eps_error=0.01, delta_error=BUDGET.delta / 1000)
        assert upper - 0.02 <= run.epsilon() <= upper


def test_each_method_s_noise_is_what_its_plan_pays_for():
    """Each release on records that contribute nothing: (deviation / bound)^-2 adds up to the multiplier's."""
    from sottovoce.privacy.sampling import FullBatch

    for method in PUBLIC_METHODS.values():
        plan = method.plan(FullBatch(steps=1, records=10))
        assert math.fsum(plan.stages[0].shares) == 1.0


@pytest.mark.parametrize("name", PUBLIC_METHODS)
def test_public_data_is_asked_for_and_must_be_enough(name: str):
    method = PUBLIC_METHODS[name]
    with pytest.raises(sv.ConfigurationError, match=f"{name} needs public="):
        session(method, PRIVATE, None)
    with pytest.raises(sv.ConfigurationError, match="public_batch=4 and public= has 2 records"):
        session(method, PRIVATE, PUBLIC[:2].clone())
    with pytest.raises(sv.DataError, match="public= is empty"):
        session(method, PRIVATE, PUBLIC[:0])
    same: list[Any] = [PRIVATE, PRIVATE[5:12], PRIVATE.numpy()[3:9]]
    for shared in same:
        with pytest.raises(sv.DataError, match="public="):
            session(method, PRIVATE, shared)
    both = torch.cat([PRIVATE, PUBLIC])
    session(method, both[:40], both[40:])  # parts of one tensor that do not overlap are two data sets
    assert "public=" in str(session(method, PRIVATE, PUBLIC).statement)


def test_subsets_of_one_data_set_may_not_share_items():
    class Items(torch.utils.data.Dataset[Tensor]):
        def __len__(self) -> int:
            return 45

        def __getitem__(self, index: int) -> Tensor:
            return torch.cat([PRIVATE, PUBLIC])[index]

    items = Items()
    method = PUBLIC_METHODS["PazoM"]
    private = torch.utils.data.Subset(items, range(40))
    session(method, private, torch.utils.data.Subset(items, range(40, 45)))  # pyright: ignore
    for shared in (items, torch.utils.data.Subset(items, range(39, 45))):
        with pytest.raises(sv.DataError, match="same items"):
            session(method, private, shared)  # pyright: ignore


def test_a_method_without_public_data_refuses_some():
    with pytest.raises(sv.ConfigurationError, match="leave out public="):
        session(sv.DPZero(lr=0.1), PRIVATE, PUBLIC)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sv.PazoM(lr=0.1, mix=1.5),
        lambda: sv.PazoM(lr=0.1, mix=-0.1),
        lambda: sv.PazoM(lr=0.1, queries=0),
        lambda: sv.PazoP(lr=0.1, subspace=0),
        lambda: sv.PazoP(lr=0.1, basis="other"),  # pyright: ignore
        lambda: sv.PazoS(lr=0.1, candidates=0),
        lambda: sv.PazoS(lr=0.1, explore=-1.0),
        lambda: sv.PazoS(lr=0.1, clip=-1.0),
        lambda: sv.DPMD(lr=-0.1),
        lambda: sv.DopeSGD(lr=0.1, public_batch=0),
        lambda: sv.GEP(lr=0.1, bases=40, public_batch=32),
        lambda: sv.GEP(lr=0.1, bases=2, groups=3),
    ],
)
def test_senseless_settings_are_refused(make: Any):
    with pytest.raises(sv.ConfigurationError):
        make()


def test_more_dimensions_than_parameters_are_refused():
    for method in (sv.PazoP(lr=0.1, subspace=4, public_batch=2), sv.GEP(lr=0.1, bases=4, groups=1, public_batch=4)):
        with pytest.raises(sv.ConfigurationError, match="3 parameters"):
            session(method, PRIVATE, PUBLIC)


def test_labels_that_the_public_set_lacks_do_no_harm():
    inputs = drawn(60, 4)
    labels = torch.arange(60) % 3
    for method in PUBLIC_METHODS.values():
        model = torch.nn.Sequential(torch.nn.Linear(4, 3))
        run = sv.fit(
            model, sv.losses.cross_entropy, private=(inputs, labels),
            public=(drawn(8, 4, seed=9), torch.zeros(8).long()), method=method, budget=BUDGET, steps=3, batch_size=10,
        )  # fmt: skip
        assert all(torch.isfinite(p).all() for p in run.model.parameters())


def test_a_public_gradient_that_is_not_finite_is_told():
    """It is public, so it may be; adding it would make every parameter useless."""
    broken = PUBLIC.clone()
    broken[:] = math.inf
    for method in PUBLIC_METHODS.values():
        with pytest.raises(sv.DataError, match="not finite"):
            session(method, PRIVATE, broken)


def test_public_batches_come_from_the_seed_alone():
    def run(seed: int) -> list[Tensor]:
        with sv.testing.no_noise():
            made = session(sv.PazoM(lr=0.1, mix=1.0, public_batch=2), PRIVATE, PUBLIC, seed=seed)
            return [made.objective.module.x.detach().clone() for _ in made]  # pyright: ignore

    torch.manual_seed(1)
    first = run(0)
    torch.manual_seed(2)
    assert all(torch.equal(a, b) for a, b in zip(first, run(0), strict=True))
    assert any(not torch.equal(first[1], run(seed)[1]) for seed in range(1, 9))
