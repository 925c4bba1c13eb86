"""Where runs start: the same model for every contestant of a seed, after some SGD on public records alone."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from sottovoce.bench.measured import accuracy_on, on_device
from sottovoce.methods import SGD
from sottovoce.session import Session
from sottovoce.tasks import settings
from sottovoce.tasks.settings import Setting
from sottovoce.update import Update


class StartKey(NamedTuple):
    """The setting, the seed of the model, the steps of SGD on public records (0 for a random start), and the device."""

    setting: str
    seed: int
    steps: int
    device: str


@dataclass(frozen=True)
class Start:
    """The state of a model and its test accuracy."""

    key: StartKey
    state: Mapping[str, Tensor]
    accuracy: float

    def model(self) -> nn.Module:
        """A fresh model in this state."""
        model = load(self.key.setting).make_model(self.key.seed).to(self.key.device)
        model.load_state_dict(self.state)
        return model


@lru_cache(maxsize=4)
def load(name: str) -> Setting:
    """A setting by its name and options."""
    base, _, rest = name.partition(":")
    options: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    return settings.load(base, **options)


def keep_start(key: StartKey, folder: Path) -> None:
    """Compute a start, and keep it where other processes find it."""
    start_of(key, folder)


@lru_cache(maxsize=8)
def start_of(key: StartKey, folder: Path | None = None) -> Start:
    """The start of this key: kept in ``folder`` by an earlier call, or computed."""
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    file = None if folder is None else folder / f"{name}.safetensors"
    if file is not None and file.exists():
        with safe_open(file, framework="pt", device=key.device) as kept:  # pyright: ignore[reportGeneralTypeIssues]
            state = {part: kept.get_tensor(part) for part in kept.keys()}  # noqa: SIM118
            return Start(key, state, float(kept.metadata()["accuracy"]))
    state = _warmed(key)
    setting = load(key.setting)
    model = setting.make_model(key.seed).to(key.device)
    model.load_state_dict(state)
    start = Start(key, state, accuracy_on(model, on_device(setting.test, key.device)))
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
        save_file(dict(state), temporary, metadata={"accuracy": repr(start.accuracy)})
        temporary.replace(file)
    return start


def _warmed(key: StartKey) -> dict[str, Tensor]:
    """The state after the warm start, at the rate of SGD's grid that does best on the validation data."""
    setting = load(key.setting)
    if key.steps == 0:
        return _copied(setting.make_model(key.seed).to(key.device))
    validation = on_device(setting.validation, key.device)
    best: tuple[float, dict[str, Tensor]] | None = None
    for point in setting.grids["SGD"]:
        model = setting.make_model(key.seed).to(key.device)
        for _ in warming(key, model, point):
            pass
        reached = accuracy_on(model, validation)
        if best is None or reached > best[0]:
            best = reached, _copied(model)
    assert best is not None
    return best[1]


def warming(key: StartKey, model: nn.Module, point: Mapping[str, Any]) -> Session:
    """The session of a warm start, at one point of SGD's grid: on public records alone."""
    setting = load(key.setting)
    return Session(
        model, setting.loss, private=setting.public, method=SGD(**point), steps=key.steps,
        batch_size=min(64, len(setting.public[0])), update=Update(schedule="cosine"), seed=key.seed,
        example=setting.example,
    )  # fmt: skip


def _copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone().contiguous() for name, value in model.state_dict().items()}
