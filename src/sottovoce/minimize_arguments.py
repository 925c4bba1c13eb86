"""What ``minimize`` is given, checked before anything is spent."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sottovoce.arguments import is_finite, is_whole
from sottovoce.inputs import tensors_of
from sottovoce.objective.directions import Key
from sottovoce.objective.function import Function
from sottovoce.planning import Schedule
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tracking import check_tracking

Floats = NDArray[np.float64]
_MANY = 100


def check_kinds(
    *, budget: Any, executor: Any, callback: Any, ledger: Any, dataset: Any, plan: Any, choose: Any, vectorized: Any
) -> None:
    """That each is of the kind that it must be."""
    if not isinstance(budget, Budget):
        raise ConfigurationError(f"budget={budget!r}: give Budget(epsilon=..., delta=...).")
    if budget.neighbours == "add-remove":
        raise ConfigurationError(
            "neighbours='add-remove' has no meaning here: the schedule follows from the number of records, and the "
            "directions of a record from its place. Take 'zero-out' or 'replace-one'."
        )
    if executor is not None and not (isinstance(executor, Executor) or hasattr(executor, "map")):
        raise ConfigurationError(f"executor={executor!r}: give a concurrent.futures.Executor.")
    if callback is not None and not callable(callback):
        raise ConfigurationError(f"callback={callback!r}: give a function of a step.")
    check_tracking(dataset, ledger)
    if plan is not None and not isinstance(plan, Schedule):
        raise ConfigurationError(f"plan={plan!r}: give a Schedule, such as planning.schedule(...) finds.")
    if not (isinstance(choose, str) and choose in ("random", "last")):
        raise ConfigurationError(f"choose={choose!r}: 'random' or 'last'.")
    if vectorized is not None and not isinstance(vectorized, bool):
        raise ConfigurationError(f"vectorized={vectorized!r}: True, False, or None to find out.")


def start_of(x0: ArrayLike) -> Floats:
    """The starting point."""
    try:
        start = np.atleast_1d(np.asarray(x0, dtype=np.float64))
    except (TypeError, ValueError):
        raise ConfigurationError(f"x0={x0!r}: one vector of numbers is needed.") from None
    if start.ndim != 1 or not len(start):
        raise ConfigurationError(f"x0 has shape {start.shape}: one vector is needed.")
    if not np.isfinite(start).all():
        raise ConfigurationError(f"x0={x0!r}: its numbers must be finite.")
    return start.copy()


def arrays_of(records: Any) -> Any:
    """The records as a tree of arrays; native, contiguous ones."""
    if isinstance(records, list) and len(records) > _MANY:
        raise ConfigurationError(
            f"records= is a list of {len(records)}: it would be taken for as many columns. Give one array with a "
            "row for each record, such as np.asarray(records), or columns in a tuple or dict."
        )
    if (found := tensors_of(records)) is None:
        hint = ", such as records.to_numpy()" if hasattr(records, "to_numpy") else ""
        raise ConfigurationError(
            f"records= is a {type(records).__name__}: give arrays with one row for each record, or a tuple or dict "
            f"of them{hint}."
        )
    return _native(found)


def _native(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _native(leaf) for name, leaf in tree.items()}
    if isinstance(tree, tuple | list) and not (tree and all(map(is_finite, tree))):
        made = [_native(leaf) for leaf in tree]
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    if isinstance(tree, np.ndarray | list | tuple):
        array = np.asarray(tree)
        return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    return tree


def slope_of(lipschitz: float | None, clip: float | None) -> float:
    """The Lipschitz constant, or what takes its place."""
    if (lipschitz is None) == (clip is None):
        raise ConfigurationError(
            f"lipschitz={lipschitz!r} and clip={clip!r}: give exactly one: how much f can change per unit of x; or, "
            "where that is not known, where slopes are cut off."
        )
    name, value = ("clip", clip) if lipschitz is None else ("lipschitz", lipschitz)
    return positive(name, value)


def positive(name: str, value: Any) -> float:
    """A positive, finite number."""
    if not (is_finite(value) and value > 0):
        raise ConfigurationError(f"{name}={value!r}: a positive, finite number is needed.")
    return float(value)


def box_around(bounds: Any, dimension: int) -> tuple[Floats, Floats] | None:
    """The least and largest value of each coordinate: from pairs, None being no bound, or from scipy's ``Bounds``."""
    if bounds is None:
        return None
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        low, high = (np.broadcast_to(np.asarray(side, dtype=np.float64), dimension) for side in (bounds.lb, bounds.ub))
    else:
        try:
            pairs = [(-np.inf if a is None else float(a), np.inf if b is None else float(b)) for a, b in bounds]
        except (TypeError, ValueError):
            raise ConfigurationError(f"bounds={bounds!r}: one pair (least, largest) for each coordinate.") from None
        if len(pairs) != dimension:
            raise ConfigurationError(f"bounds of {len(pairs)} pairs: one pair for each of {dimension} coordinates.")
        low, high = np.asarray(pairs).T
    if not (low < high).all():
        raise ConfigurationError(f"bounds={bounds!r}: in each one pair the least must be below the largest.")
    return low, high


def seed_of(seed: Any) -> Key:
    """Where public randomness starts."""
    if not is_whole(seed):
        raise ConfigurationError(f"seed={seed!r}: a whole number is needed, from which the public randomness starts.")
    return Key(int(seed))


def check_plan(plan: Schedule | None, method: str, records: int) -> None:
    """A schedule of the user's must be one of this method, for these records."""
    if plan is None:
        return
    if plan.oracle != method:
        raise ConfigurationError(f"plan= is a schedule of {plan.oracle!r} and method={method!r}: they must agree.")
    if (plan.bases == 0) != (method == "first-order"):
        raise ConfigurationError(f"plan= has bases={plan.bases}: 0 with the first-order method, else at least 1.")
    if method.startswith("multi") and plan.batch != records:
        raise ConfigurationError(f"plan= has batch={plan.batch}: with {method!r} it must be all {records} records.")


def asked_of(f: Function | None, jac: Function | None, method: str, *, bounded: bool) -> Function:
    """The function that is evaluated: the gradient for the first-order method, the value for the others."""
    given = {"f": f, "jac": jac}
    for name, function in given.items():
        if function is not None and not callable(function):
            raise ConfigurationError(f"{name}={function!r}: a function of a point and a record is needed.")
    if method != "first-order":
        if f is None or jac is not None:
            raise ConfigurationError(f"method={method!r} asks for values: give f, and leave out jac=.")
        return f
    if jac is None or bounded:
        raise ConfigurationError("method='first-order' asks for gradients: give jac=, and leave out bounds=.")
    return jac


Bounds = Sequence[tuple[float | None, float | None]]
"""As scipy takes them."""
