"""Matching a table of a configuration file with what a function or a class takes: names, types, defaults."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.toml import is_value

_WORDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def bind(
    where: str,
    given: Mapping[str, Any],
    *targets: Callable[..., Any],
    elsewhere: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The arguments that a table gives, checked, with every default that TOML can hold filled in.

    Args:
        where: what the messages call the table, such as ``[method]``.
        given: the table.
        targets: functions or classes, whose parameters together are the table's keys; later ones go before.
        elsewhere: for keys of other tables, where they belong.

    Raises:
        ConfigurationError: an unknown key (the nearest known one is named), a missing one, or a wrong type.
    """
    parameters, hints, open_ended = _parameters(targets)
    bound: dict[str, Any] = {}
    for key, value in given.items():
        if key not in parameters and not open_ended:
            raise ConfigurationError(f"{where} {key} is not known: {_hint(key, parameters, elsewhere or {})}")
        bound[key] = convert(f"{where} {key}", value, hints.get(key, Any))
    missing = [name for name, p in parameters.items() if p.default is p.empty and name not in given]
    if missing:
        needed = " and ".join(f"{name} ({describe(hints.get(name, Any))})" for name in missing)
        raise ConfigurationError(f"{where} needs {needed}, which {'is' if len(missing) == 1 else 'are'} missing.")
    defaults = {name: p.default for name, p in parameters.items() if name not in given and is_value(p.default)}
    return bound | defaults


def nearest(given: str, known: Iterable[str]) -> str:
    """``did you mean 'x'? Known are a, b.``: the end of a message about an unknown name."""
    names = list(known)
    return f"{_guess(given, names)}Known are {', '.join(names) or 'none'}."


def _guess(given: object, known: Iterable[str]) -> str:
    """``did you mean 'x'? ``, or nothing if nothing known is like it."""
    plain = {name.lower().replace("_", "-"): name for name in known}
    near = difflib.get_close_matches(str(given).lower().replace("_", "-"), plain, n=1, cutoff=0.5)
    return f"did you mean {plain[near[0]]!r}? " if near else ""


def _choices(hint: Any) -> list[str]:
    """The words that a type allows, if it is made of words."""
    if get_origin(hint) is Literal:
        return [choice for choice in get_args(hint) if isinstance(choice, str)]
    nested = get_args(hint) if get_origin(hint) in (Annotated, Union, types.UnionType) else ()
    return [choice for each in nested for choice in _choices(each)]


def convert(where: str, value: Any, hint: Any) -> Any:
    """The value as the type that is asked for; only whole numbers become fractional ones, and lists tuples.

    A type that TOML does not have is not judged here.

    Raises:
        ConfigurationError: it is of another type; the message says what was given and what is needed.
    """
    try:
        return _converted(value, hint)
    except _Mismatch:
        choices = _choices(hint)
        given = "" if choices and isinstance(value, str) else f", {_kind(value)} was given"
        raise ConfigurationError(
            f"{where} = {value!r}: {_guess(value, choices)}{describe(hint)} is needed{given}."
        ) from None


def describe(hint: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return describe(arguments[0])
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if origin in (Union, types.UnionType):
        return " or ".join(describe(each) for each in arguments if each is not types.NoneType)
    if origin in (list, tuple):
        return f"a list of {len(arguments) if origin is tuple and ... not in arguments else 'values'}, each " + (
            describe(arguments[0])
        )
    return _WORDS.get(hint, "a value")


class _Mismatch(Exception):
    """The value is not of the type."""


def _converted(value: Any, hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _converted(value, arguments[0])
    if origin in (Union, types.UnionType):
        return _first_match(value, arguments)
    if origin is Literal:
        fits = any(value == choice and type(value) is type(choice) for choice in arguments)
    elif origin in (list, tuple):
        return _converted_list(value, origin, arguments)
    elif hint in (int, float) and isinstance(value, bool):
        fits = False
    elif hint is float and isinstance(value, int | float):
        return float(value)
    else:
        fits = hint not in _WORDS or isinstance(value, hint)
    if not fits:
        raise _Mismatch
    return value


def _first_match(value: Any, hints: tuple[Any, ...]) -> Any:
    for hint in hints:
        try:
            if hint is not types.NoneType:
                return _converted(value, hint)
        except _Mismatch:
            continue
    raise _Mismatch


def _converted_list(value: Any, origin: type, hints: tuple[Any, ...]) -> Any:
    fixed = origin is tuple and ... not in hints
    if not isinstance(value, list | tuple) or (fixed and len(value) != len(hints)):
        raise _Mismatch
    wanted = hints if fixed else (hints[0],) * len(value)
    return origin(_converted(each, hint) for each, hint in zip(value, wanted, strict=True))


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    return {bool: "a boolean", int: "a whole number", float: "a number with a fraction", str: "text"}.get(
        type(value), f"a {type(value).__name__}"
    )


def takes(target: Callable[..., Any], key: str) -> bool:
    """Whether a function or a class takes an argument of this name."""
    parameters = parameters_of(target)
    return key in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def parameters_of(target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters by name; functions written in C may not tell them, and are taken to accept any key."""
    try:
        return inspect.signature(target).parameters
    except ValueError:
        return {"options": inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)}


def _parameters(
    targets: tuple[Callable[..., Any], ...],
) -> tuple[dict[str, inspect.Parameter], dict[str, Any], bool]:
    """Parameters by name, their types where they can be known, and whether any other key is welcome as well."""
    named: dict[str, inspect.Parameter] = {}
    hints: dict[str, Any] = {}
    open_ended = False
    for target in targets:
        parameters = parameters_of(target)
        with contextlib.suppress(Exception):  # annotations that only a type checker can resolve stay unknown
            hints |= get_type_hints(target.__init__ if inspect.isclass(target) else target)
        open_ended |= any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        named |= {
            name: each
            for name, each in parameters.items()
            if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        }
    return named, hints, open_ended


def _hint(key: str, known: Collection[str], elsewhere: Mapping[str, str]) -> str:
    return f"it belongs in {elsewhere[key]}." if key in elsewhere else nearest(key, known)
