import pytest
import torch
import torch.nn.functional as F
from objective_models import KINDS, cross_entropy, example_for
from torch import nn

from sottovoce.objective import gradients as engines
from sottovoce.objective.module import ModuleObjective
from sottovoce.objective.records import select, stack
from sottovoce.objective.synthetic import variants
from sottovoce.privacy.errors import QueryError


def batch_for(example):
    made = variants(example)
    return stack([example, made["noise"], made["zeros"], made["ones"], example])


def one_by_one(model, loss, records):
    model.eval()
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for row in range(len(records[1])):
        one = select(records, slice(row, row + 1))
        found = torch.autograd.grad(loss(model, one)[0], parameters, materialize_grads=True)
        rows.append(torch.cat([g.reshape(-1) for g in found]))
    return torch.stack(rows)


def assert_near(found, expected):
    """Rounding of another kernel, relative to each row's norm (group norm of a constant image enlarges it)."""
    assert float(((found - expected).norm(dim=-1) / expected.norm(dim=-1)).max()) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_the_gradients_of_the_records(kind):
    model, example = example_for(kind)
    objective = ModuleObjective(model, cross_entropy, example=example)
    records = batch_for(example)
    model.train()
    found = objective.gradients(records)
    assert all(part.training for part in model.modules())
    assert all(p.grad is None for p in model.parameters())
    expected = one_by_one(model, cross_entropy, records)
    assert found.shape == (5, objective.parameters.numel())
    assert not found.requires_grad
    assert_near(found, expected)
    assert_near(objective.mean_gradient(records), expected.mean(0))
    assert objective.gradient_engine() == "vmap"


@pytest.mark.parametrize("kind", ["tied", "convolution", "lstm"])
def test_a_row_does_not_depend_on_the_contents_of_others(kind):
    """Bit for bit, at one batch shape, with NaN among the company."""
    model, example = example_for(kind)
    objective = ModuleObjective(model, cross_entropy, example=example)
    alone = objective.gradients(stack([example] * 6))
    for name, other in variants(example).items():
        if kind == "tied" and name in ("large noise", "integers up to 255"):  # no such words
            continue
        found = objective.gradients(stack([example, other, other, example, other, example]))
        for row in (0, 3, 5):
            assert torch.equal(found[row], alone[row]), name


def test_chunks_give_the_same_rows(monkeypatch):
    model, example = example_for("convolution")
    objective = ModuleObjective(model, cross_entropy, example=example)
    records = batch_for(example)
    whole = objective.gradients(records)
    monkeypatch.setattr(engines, "_ROWS_BYTES", 2 * 4 * objective.parameters.numel())
    chunks: list[slice] = []
    monkeypatch.setattr(engines, "select", lambda tree, rows: (chunks.append(rows), select(tree, rows))[1])
    assert_near(objective.gradients(records), whole)
    assert chunks == [slice(0, 2), slice(2, 4), slice(3, 5)], "of one shape, or rounding would differ among them"


def test_half_precision_rows_have_the_model_s_type():
    model, (inputs, target) = example_for("convolution")
    model.bfloat16()
    example = (inputs.bfloat16(), target)
    objective = ModuleObjective(model, cross_entropy, example=example)
    found = objective.gradients(batch_for(example))
    assert found.dtype == objective.mean_gradient(batch_for(example)).dtype == torch.bfloat16
    assert objective.gradient_engine() == "vmap"


def test_control_flow_that_depends_on_data_falls_back_to_the_loop():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x):
            return self.layer(x) * (2.0 if x.sum() > 0 else 1.0)

    model, example = Branching(), (torch.randn(6), torch.tensor(1))
    objective = ModuleObjective(model, cross_entropy, example=example)
    records = batch_for(example)
    expected = one_by_one(model, cross_entropy, records)
    torch.testing.assert_close(objective.gradients(records), expected)
    assert objective.gradient_engine() == "loop"


def test_parameters_that_vmap_would_miss_in_silence_fall_back_to_the_loop():
    class Hides(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)
            self.hidden = [self.layer.weight]  # functional_call does not reach into this list

        def forward(self, x):
            return F.linear(x, self.hidden[0], self.layer.bias)

    model, example = Hides(), (torch.randn(6), torch.tensor(1))
    objective = ModuleObjective(model, cross_entropy, example=example)
    records = batch_for(example)
    assert_near(objective.gradients(records), one_by_one(model, cross_entropy, records))
    assert objective.gradient_engine() == "loop"


def test_unused_parameters_have_zero_gradients():
    model, example = nn.ModuleDict({"used": nn.Linear(6, 3), "unused": nn.Linear(2, 2)}), None
    example = (torch.randn(6), torch.tensor(1))

    def loss(model, batch):
        return F.cross_entropy(model["used"](batch[0]), batch[1], reduction="none")

    objective = ModuleObjective(model, loss, example=example)
    found = objective.gradients(batch_for(example))
    assert not found[:, 21:].any()
    assert found[:, :21].any()
    assert not objective.mean_gradient(batch_for(example))[21:].any()


def test_a_loss_without_gradients_is_refused_on_the_example():
    def errors(model, batch):
        return (model(batch[0]).argmax(1) != batch[1]).float()

    example = (torch.randn(6), torch.tensor(1))
    objective = ModuleObjective(nn.Linear(6, 3), errors, example=example)
    assert objective.losses(batch_for(example)).shape == (5,)
    with pytest.raises(QueryError, match="zeroth-order"):
        objective.gradients(batch_for(example))


def test_the_engine_is_chosen_without_looking_at_private_records():
    seen: list[object] = []

    def loss(model, batch):
        try:
            seen.append(bool((batch[0] == 17.0).any()))
        except RuntimeError:  # a value cannot be read under vmap
            seen.append("mapped")
        return cross_entropy(model, batch)

    objective = ModuleObjective(nn.Linear(6, 3), loss)
    objective.gradients((torch.full((4, 6), 17.0), torch.zeros(4, dtype=torch.int64)))
    assert objective.gradient_engine() == "vmap"
    assert seen[-1] == "mapped"
    assert seen.count(False) >= 4
    assert True not in seen
