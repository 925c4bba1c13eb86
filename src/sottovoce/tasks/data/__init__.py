"""A small registry of real data sets: fetched once, on request, checked, and kept in the user's cache folder.

Nothing is downloaded behind the user's back: :func:`load` reads the cache and, where a data set is missing,
raises :class:`DatasetMissing` with the one command that gets it. Only :func:`get` fetches.
"""

from sottovoce.tasks.data.cache import DatasetMissing, is_cached, root
from sottovoce.tasks.data.fetch import get
from sottovoce.tasks.data.images import ImageData, load, path
from sottovoce.tasks.data.registry import DatasetSpec, WheelSource, names, spec

__all__ = [
    "DatasetMissing",
    "DatasetSpec",
    "ImageData",
    "WheelSource",
    "get",
    "is_cached",
    "load",
    "names",
    "path",
    "root",
    "spec",
]
