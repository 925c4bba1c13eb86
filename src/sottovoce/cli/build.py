"""From a checked configuration to what `fit` takes: data, model, loss and metrics, built in or the user's own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sottovoce.binding import bind, convert, nearest, takes
from sottovoce.cli.support import place_of
from sottovoce.config import Config, Named, data_keys
from sottovoce.inputs import as_public, as_records
from sottovoce.losses import LOSSES, METRICS
from sottovoce.objective.loss import Loss
from sottovoce.objective.records import select
from sottovoce.overlap import refuse_private_as_public
from sottovoce.privacy.errors import ConfigurationError, DataError, SottovoceError
from sottovoce.privacy.trees import Tree, leaves_of, map_leaves
from sottovoce.tasks import data, models
from sottovoce.tasks.data.permutation import order

_PARTS = ("private", "validate", "example", "shape", "classes", "public")


@dataclass(frozen=True, kw_only=True)
class Task:
    """Everything that a run needs, and the configuration with what was still open filled in.

    Attributes:
        records: the number of private records.
        public: records that everybody may see, for methods that use some; None if there are none.
        validate: data that the caller declares public, on the CPU; None if there is none.
    """

    config: Config
    model: nn.Module
    loss: Loss
    private: Any
    records: int
    public: Any
    validate: Tree | None
    example: Tree | None
    metrics: Mapping[str, Loss]


def build(config: Config) -> Task:
    """Make what the configuration names. Nothing is spent here.

    The current directory is searched first for ``package.module``, as for a script that lies there.

    Raises:
        ConfigurationError: something cannot be imported, does not take its options, or gives something unusable.
    """
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    loss = LOSSES[config.loss] if config.loss in LOSSES else find("[loss] name", config.loss)
    metrics = {name: _metric(name, loss) for name in config.metrics}
    parts, data_options = _data(config.data)
    records = as_records(parts["private"], parts.get("example"), parts.get("public"))
    shape = parts.get("shape") or _shape_of(records.example)
    model, model_options = _model(config, shape, parts.get("classes"))
    return Task(
        config=config.resolved(
            data=Named(name=config.data.name, options=data_options),
            model=Named(name=config.model.name, options=model_options),
        ),
        model=model,
        loss=loss,
        private=parts["private"],
        records=records.count,
        public=parts.get("public"),
        validate=as_public(parts["validate"], "'validate'") if "validate" in parts else None,
        example=parts.get("example"),
        metrics=metrics,
    )


def find(where: str, name: str, *, tell: bool = True) -> Callable[..., Any]:
    """The function or class ``package.module:name``.

    Args:
        where: what the messages call the place of the name.
        name: the module and the name in it.
        tell: whether the message of whatever is raised may be repeated, as it cannot speak of private records.

    Raises:
        ConfigurationError: the module is not there, fails when it is imported, or has nothing of this name.
    """
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise ConfigurationError(f"{where} = {name!r}: 'package.module:name' is needed, such as 'my_data:load'.")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigurationError(f"{where}: {module_name} needs {error.name}, which is not installed.") from None
        raise ConfigurationError(
            f"{where}: there is no module {error.name!r}, neither in {Path.cwd()} nor among the installed packages."
        ) from None
    except Exception as error:
        told = _account(error, tell=tell or _is_of_source(error))
        raise ConfigurationError(f"{where}: importing {module_name!r} failed: {told}.") from None
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
            raise ConfigurationError(f"{where}: {module_name} has no {attribute!r}: {nearest(attribute, known)}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigurationError(f"{where}: {name} is a {type(found).__name__}; a function or a class is needed.")
    return found


def _call(where: str, factory: Callable[..., Any], options: Mapping[str, Any], *, tell: bool) -> Any:
    """Call the user's code. Its message is repeated only if it cannot speak of private records."""
    try:
        return factory(**options)
    except SottovoceError:
        raise
    except Exception as error:
        raise ConfigurationError(f"{where} failed: {_account(error, tell=tell)}.") from None


def _account(error: Exception, *, tell: bool) -> str:
    """What happened where; with the message, unless that may quote a private record, as any may: a label that is no
    member of an enumeration is an AttributeError.
    """
    message = f": {error}" if tell else " (the message is withheld, as it may quote a record; call it in Python)"
    return f"{place_of(error)}{message}"


def _is_of_source(error: Exception) -> bool:
    """A mistake in a Python file; what other parsers, or evaluated text, complain of may be data."""
    return type(error) in (SyntaxError, IndentationError, TabError) and str(error.filename).endswith(".py")  # pyright: ignore


def _metric(name: str, loss: Loss) -> Loss:
    if name == "loss":
        return loss
    return METRICS.get(name) or LOSSES.get(name) or find("[loss] metrics", name)


def _data(named: Named) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parts of the data, and its options with defaults."""
    options = dict(named.options)
    if not named.is_factory:
        loaded = data.load(named.name)
        parts = {"shape": loaded.shape, "classes": loaded.classes}
        parts["validate"] = loaded.as_tensors("test", normalise=options["normalise"])
        if not options.get("public_records"):
            parts["private"] = loaded.as_tensors("train", limit=options.get("limit"), normalise=options["normalise"])
            return parts, options
        train = loaded.as_tensors("train", normalise=options["normalise"])
        shown = options["public_records"]
        numbers = torch.tensor(order(f"{named.name}-public", len(train[1])))
        hidden = numbers[shown:][: options.get("limit")]
        parts["public"], parts["private"] = select(train, numbers[:shown]), select(train, hidden)
        return parts, options
    where = f"[data] {named.name}"
    factory = find("[data] name", named.name, tell=False)
    wanted = takes(factory, "records")
    options = bind("[data]", options, factory, *(() if wanted else (data_keys,)))
    arguments = {key: value for key, value in options.items() if key != "records" or wanted}
    return _parts(where, _call(where, factory, arguments, tell=False)), options


def _parts(where: str, made: Any) -> dict[str, Any]:
    """What a data factory gave, by name."""
    if isinstance(made, tuple):
        if not 1 <= len(made) <= len(_PARTS):
            raise ConfigurationError(f"{where} gave a tuple of {len(made)}: ({', '.join(_PARTS)}) is needed.")
        made = dict(zip(_PARTS, made, strict=False))
        if made.get("validate") is not None and _form(made["validate"]) != _form(made["private"]):
            raise ConfigurationError(
                f"{where} gave a tuple whose first two parts differ in form: they are taken as the private records and "
                "the PUBLIC validation data. For anything else give a dict with the keys " + ", ".join(_PARTS) + "."
            )
    if not isinstance(made, Mapping):
        raise ConfigurationError(
            f"{where} gave a {type(made).__name__}: a dict with the keys {', '.join(_PARTS)} is needed, of which only "
            "private must be there."
        )
    for key in made:
        if key not in _PARTS:
            raise ConfigurationError(f"{where} gave the key {key!r}, which is not known: {nearest(str(key), _PARTS)}")
    if made.get("private") is None:
        raise ConfigurationError(f"{where} gave no 'private': the records to be protected are needed.")
    if made.get("validate") is not None:
        try:
            refuse_private_as_public(made["private"], made["validate"], "'validate'")
        except DataError as error:
            raise ConfigurationError(
                f"{where} gave private records as 'validate', which is declared PUBLIC and measured exactly: {error}"
            ) from None
    return {key: value for key, value in made.items() if value is not None}


def _form(tree: Any) -> str:
    """The structure of a tree, with what each record looks like at its leaves; NumPy and torch count alike."""

    def record(leaf: Any) -> str:
        return f"{str(getattr(leaf, 'dtype', '')).removeprefix('torch.')}{list(getattr(leaf, 'shape', ()))[1:]}"

    return repr(map_leaves(record, tree))


def _shape_of(example: Tree) -> tuple[int, ...]:
    """The shape of the first part of a record, which is public."""
    shape = tuple(leaves_of(example)[0].shape)
    return (1,) * (3 - len(shape)) + shape


def _model(config: Config, shape: Any, classes: Any) -> tuple[nn.Module, dict[str, Any]]:
    named, where = config.model, f"[model] {config.model.name}"
    options = dict(named.options)
    seed = options.get("seed", config.run.seed)
    if named.is_factory:
        factory = find("[model] name", named.name)
        wanted = takes(factory, "seed")
        options = bind("[model]", options, factory, *(() if wanted else (_seed,)))
        arguments = {key: value for key, value in options.items() if key != "seed" or wanted}
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            model = _call(where, factory, arguments, tell=True)
        if not isinstance(model, nn.Module):
            raise ConfigurationError(f"{where} gave a {type(model).__name__}: a torch.nn.Module is needed.")
        return model, options | {"seed": seed}
    shape, classes = options.pop("shape", shape), options.pop("classes", classes)
    if classes is None:
        raise ConfigurationError(
            f"{where} needs the number of outputs, which is never read off private labels: add classes = 10, say, to "
            "[model], or return 'classes' from the data factory."
        )
    sizes = convert("[model] shape", list(shape), list[int])
    classes = convert("[model] classes", classes, int)
    options["seed"] = seed
    model = models.build(named.name, shape=tuple(sizes), classes=classes, **options)
    return model, {"shape": sizes, "classes": classes, **options}


def _seed(*, seed: int | None = None) -> None:
    """The key of ``[model]`` for any model: where the random initialisation starts."""
