"""A training run as a TOML file: read, checked, and written again with every default filled in.

Nothing is imported and no data is touched here, so that a file can be checked and planned anywhere.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from sottovoce.binding import bind, nearest, parameters_of
from sottovoce.horizon import Sampling
from sottovoce.losses import LOSSES, METRICS
from sottovoce.methods import (
    DPMD,
    DPSGD,
    GEP,
    SGD,
    DopeSGD,
    DPZero,
    Method,
    MeZO,
    PazoM,
    PazoP,
    PazoS,
    PlainMethod,
    uses_public,
)
from sottovoce.objective.strategies import Strategy
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks import data, models
from sottovoce.toml import Value, dumps
from sottovoce.update import Update

TABLES = ("data", "model", "loss", "method", "budget", "run")
METHODS: Mapping[str, Callable[..., Any]] = {
    each.__name__: each for each in (DPZero, DPSGD, PazoM, PazoP, PazoS, DPMD, DopeSGD, GEP, SGD, MeZO)
}
_CLASSIFYING = ("cross-entropy", "logistic", "hinge", "zero-one")


@dataclass(frozen=True, kw_only=True)
class Run:
    """The table ``[run]``; see `sottovoce.Session` for what the keys mean."""

    epochs: float | None = None
    steps: int | None = None
    batch_size: int | None = None
    sampling: Sampling = "poisson"
    records: int | None = None
    dataset: str | None = None
    seed: int = 0
    evaluate_every: int | None = None
    strategy: Strategy = "auto"
    max_physical_batch: int = 512
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: str = "constant"
    averaging: float | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        self.update()
        if self.name is not None:
            check_run_name(self.name)
        if self.dataset is not None and not self.dataset.strip():
            raise ConfigurationError("dataset = '': give the data set a name, or leave the key out.")
        if self.evaluate_every is not None and self.evaluate_every < 1:
            raise ConfigurationError(f"evaluate_every = {self.evaluate_every}: at least 1 step.")

    def update(self) -> Update:
        """Momentum, weight decay, schedule and averaging."""
        return Update(**{key: getattr(self, key) for key in parameters_of(_update_keys)})


@dataclass(frozen=True, kw_only=True)
class Named:
    """A table that names a thing, built in or ``package.module:factory``, with options that depend on the thing."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_factory(self) -> bool:
        """Whether the user's own code is named."""
        return ":" in self.name


@dataclass(frozen=True, kw_only=True)
class Config:
    """A configuration that has been checked as far as that goes without importing anything.

    Attributes:
        metrics: what is measured on the public validation data; ``"loss"`` is the loss itself.
    """

    data: Named
    model: Named
    loss: str
    metrics: tuple[str, ...]
    method: Method | PlainMethod
    budget: Budget | None
    run: Run

    @property
    def add_remove(self) -> bool:
        """Whether the number of records is itself protected, so that it may not be taken from the data."""
        return self.budget is not None and self.budget.neighbours == "add-remove"

    def known_records(self, given: int | None = None) -> int | None:
        """The number of records from which rate, steps and divisor are made, as far as it is known without data."""
        if self.add_remove:
            return given or self.run.records
        told = given or self.data.options.get("records") or self.run.records
        if told or self.data.is_factory:
            return told
        everything = data.spec(self.data.name).train_records - (self.data.options.get("public_records") or 0)
        return min(everything, self.data.options.get("limit") or everything)

    def resolved(self, **changes: Any) -> Self:
        """The same with some parts replaced, such as defaults that have become known."""
        return dataclasses.replace(self, **changes)

    def tables(self) -> dict[str, dict[str, Value]]:
        """The configuration with every default filled in. What is off by default stays away."""
        tables = {
            "data": {"name": self.data.name, **self.data.options},
            "model": {"name": self.model.name, **self.model.options},
            "loss": {"name": self.loss, "metrics": list(self.metrics)},
            "method": {"name": type(self.method).__name__, **_fields(self.method)},
            "budget": {} if self.budget is None else _fields(self.budget),
            "run": _fields(self.run),
        }
        kept = {
            name: {key: value for key, value in table.items() if value is not None} for name, table in tables.items()
        }
        return {name: table for name, table in kept.items() if table}

    def dumps(self) -> str:
        """The tables as TOML."""
        return dumps(self.tables())


def read(path: Path) -> Config:
    """Read and check a configuration file.

    Raises:
        ConfigurationError: it cannot be read, is not TOML, or says something wrong; the message names the file.
    """
    try:
        return parse(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ConfigurationError(f"there is no configuration file {path}; give the path of a TOML file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read ({error}); a TOML file in UTF-8 is needed.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not TOML: {error}.") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def parse(document: Mapping[str, Any]) -> Config:
    """The configuration in a parsed TOML document.

    Raises:
        ConfigurationError: a table, a key, a name, a type or a value is wrong; the message names the nearest.
    """
    tables = _split(document)
    method = _method(tables["method"])
    loss, metrics = _loss(tables["loss"])
    named = _data(tables["data"])
    model = _named("model", tables["model"], models.names(), lambda name: (_builder(name), _model_keys))
    _check_public(named, method)
    _check_sizes(named, model)
    return Config(
        data=named,
        model=model,
        loss=loss,
        metrics=metrics,
        method=method,
        budget=_budget(tables.get("budget"), method),
        run=_run(tables["run"], method),
    )


def check_run_name(name: str) -> None:
    """A run's name is the name of one folder."""
    if not name.strip(". ") or not name.isprintable() or set(name) & set('/\\:*?"<>|') or len(name.encode()) > 200:
        raise ConfigurationError(f"name = {name!r}: a run's name is that of a folder, such as 'first-try'.")


def _split(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    for name, table in document.items():
        if name in TABLES and isinstance(table, dict):
            continue
        if isinstance(table, dict):
            raise ConfigurationError(f"[{name}] is not a known table: {nearest(name, TABLES)}")
        where = (
            f"[{_HOMES[name]}]" if name in _HOMES else "one of the tables " + ", ".join(f"[{each}]" for each in TABLES)
        )
        raise ConfigurationError(f"{name} = {table!r} stands outside of the tables: put it under {where}.")
    for name in TABLES:
        if name not in document and name != "budget":
            raise ConfigurationError(f"the table [{name}] is missing: {_EXAMPLES[name]}")
    return dict(document)


_HOMES = {
    **{each.name: "run" for each in dataclasses.fields(Run)},
    **{each.name: "budget" for each in dataclasses.fields(Budget)},
    "metrics": "loss",
    "lr": "method",
    "clip": "method",
}
"""Where a key belongs that was put elsewhere."""

_EXAMPLES = {
    "data": 'it names the records, as in name = "mnist" or name = "package.module:factory".',
    "model": 'it names what is trained, as in name = "small-cnn" or name = "package.module:factory".',
    "loss": 'it names what is minimised, as in name = "cross-entropy".',
    "method": 'it names the algorithm, as in name = "DPZero" and lr = 0.01.',
    "run": "it says how long and on what batches, as in epochs = 5 and batch_size = 256.",
}


def _bind(table: str, given: Mapping[str, Any], *targets: Callable[..., Any]) -> dict[str, Any]:
    elsewhere = {key: f"[{home}]" for key, home in _HOMES.items() if home != table}
    return bind(f"[{table}]", given, *targets, elsewhere=elsewhere)


def _named(
    table: str,
    given: Mapping[str, Any],
    known: tuple[str, ...],
    keys_of: Callable[[str], tuple[Callable[..., Any], ...]],
) -> Named:
    """The options of what is built in are checked here, those of the user's own code when it is imported."""
    options = dict(given)
    name = _name(table, options, known)
    return Named(name=name, options=options if ":" in name else _bind(table, options, *keys_of(name)))


def _data(given: Mapping[str, Any]) -> Named:
    """Of what is built in, images alone can be named: texts need a tokeniser, which a name does not say."""
    kinds = {name: data.spec(name).kind for name in data.names()}
    kind = kinds.get(given["name"]) if isinstance(given.get("name"), str) else None
    images = tuple(name for name, each in kinds.items() if each == "images")
    if kind not in (None, "images"):
        loader = f"sottovoce.tasks.data.{'weights' if kind == 'weights' else 'load_texts'}({given['name']!r})"
        raise ConfigurationError(
            f"[data] name = {given['name']!r} holds {kind}, and only images can be named here ({', '.join(images)}): "
            f"name a function of your own, as 'package.module:factory', that makes tensors of {loader}."
        )
    return _named("data", given, images, lambda _: (_built_in_data, data_keys))


def _check_sizes(named: Named, model: Named) -> None:
    """What `train` would refuse, `plan` refuses too."""
    options = named.options
    limit, records = options.get("limit"), options.get("records")
    if not model.is_factory:
        shape, classes = model.options.get("shape"), model.options.get("classes")
        if shape is not None and (len(shape) != 3 or min(shape) < 1):
            raise ConfigurationError(
                f"[model] shape = {shape}: channels, height and width are needed, each at least 1."
            )
        if classes is not None and classes < 1:
            raise ConfigurationError(f"[model] classes = {classes}: at least 1 output is needed.")
    if named.is_factory:
        return
    most = data.spec(named.name).train_records - (options.get("public_records") or 0)
    if limit is not None and not 1 <= limit <= most:
        raise ConfigurationError(f"[data] limit = {limit}: {named.name} has {most} records to take.")
    if records is not None and records != (limit or most):
        raise ConfigurationError(
            f"[data] records = {records}: {named.name} has {limit or most}, which is known; leave it out, or take "
            "limit = N for fewer."
        )


def _check_public(named: Named, method: Method | PlainMethod) -> None:
    """Of built-in data, public records are set aside if and only if the method uses some."""
    if named.is_factory:
        return
    given, used, name = named.options.get("public_records") or 0, uses_public(method), type(method).__name__
    most = data.spec(named.name).train_records
    if not 0 <= given < most:
        raise ConfigurationError(f"[data] public_records = {given}: {named.name} has {most} training records.")
    if used and not given:
        raise ConfigurationError(
            f"{name} uses public records: add public_records = 2000, say, to [data]; that many records of "
            f"{named.name} are then treated as public."
        )
    if given and not used:
        raise ConfigurationError(f"[data] public_records = {given}: {name} uses no public records; leave it out.")


def _builder(name: str) -> Callable[..., Any]:
    return getattr(models, name.replace("-", "_"))


def _name(table: str, options: dict[str, Any], known: tuple[str, ...], *, own: bool = True) -> str:
    """Take the name out of a table."""
    if "name" not in options:
        raise ConfigurationError(f"[{table}] name is missing: {_EXAMPLES[table]}")
    name = options.pop("name")
    if not isinstance(name, str):
        raise ConfigurationError(f"[{table}] name = {name!r}: text is needed, such as {known[0]!r}.")
    if name not in known and not (own and ":" in name):
        hint = " Or name your own code as 'package.module:factory'." if own else ""
        raise ConfigurationError(f"[{table}] name = {name!r} is not known: {nearest(name, known)}{hint}")
    return name


def _built_in_data(*, limit: int | None = None, normalise: bool = True, public_records: int | None = None) -> None:
    """The options of built-in data: the first so many private records only; shift and scale by published constants; so
    many of the training records, chosen by a fixed permutation, treated as public, for the methods that use some.
    """


def data_keys(*, records: int | None = None) -> None:
    """The keys of ``[data]`` for any data."""


def _model_keys(*, shape: list[int] | None = None, classes: int | None = None, seed: int | None = None) -> None:
    """The keys of ``[model]`` for any built-in model; by default shape and classes are those of the data."""


def _loss_keys(*, metrics: list[str] | None = None) -> None:
    """The keys of ``[loss]``."""


def _update_keys(
    *, momentum: float = 0.0, weight_decay: float = 0.0, schedule: str = "constant", averaging: float | None = None
) -> None:
    """The keys of ``[run.update]``, which may stand in ``[run]`` as well: what `Update` takes and TOML can hold."""


def _method(given: Mapping[str, Any]) -> Method | PlainMethod:
    options = dict(given)
    make = METHODS[_name("method", options, tuple(METHODS), own=False)]
    return make(**_bind("method", options, make))


def _loss(given: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    options = dict(given)
    name = _name("loss", options, tuple(LOSSES))
    default = ["accuracy", "loss"] if name in _CLASSIFYING else ["loss"]
    metrics = _bind("loss", options, _loss_keys).get("metrics", default)
    known = dict.fromkeys(("loss", *METRICS, *LOSSES))
    for metric in metrics:
        if metric not in known and ":" not in metric:
            raise ConfigurationError(
                f"[loss] metrics names {metric!r}, which is not known: {nearest(metric, known)} Or name your own as "
                "'package.module:function'."
            )
    return name, tuple(dict.fromkeys(metrics))


def _budget(given: Mapping[str, Any] | None, method: Method | PlainMethod) -> Budget | None:
    name = type(method).__name__
    if given is None and method.private:
        raise ConfigurationError(
            f"the table [budget] is missing: {name} is private and needs one, as in epsilon = 1.0 and delta = 1e-6."
        )
    if given is not None and not method.private:
        raise ConfigurationError(
            f"{name} is a reference WITHOUT PRIVACY and cannot keep a budget: remove the table [budget], or take "
            "DPZero or DPSGD."
        )
    return None if given is None else Budget(**_bind("budget", given, Budget))


def _run(given: Mapping[str, Any], method: Method | PlainMethod) -> Run:
    options = dict(given)
    nested = options.pop("update", {})
    if not isinstance(nested, dict):
        raise ConfigurationError(f"[run] update = {nested!r}: a table is needed, as in [run.update].")
    bind("[run.update]", nested, _update_keys)
    if twice := [key for key in nested if key in options]:
        raise ConfigurationError(f"{twice[0]} is given in [run] and in [run.update]: once is enough.")
    run = Run(**_bind("run", options | nested, Run))
    if run.dataset is not None and not method.private:
        raise ConfigurationError(
            f"[run] dataset = {run.dataset!r} with {type(method).__name__}, a reference WITHOUT PRIVACY: what it does "
            "to a data set cannot be entered in the ledger. Remove the key, or take DPZero or DPSGD."
        )
    return run


def _fields(thing: Any) -> dict[str, Any]:
    return {each.name: getattr(thing, each.name) for each in dataclasses.fields(thing)}
