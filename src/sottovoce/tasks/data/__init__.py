"""A small registry of real data sets and pretrained weights: fetched once, on request, checked, and kept in the cache.

Nothing is downloaded behind the user's back: :func:`load` and :func:`weights` read the cache and, where something is
missing, raise :class:`DatasetMissing` with the one command that gets it. Only :func:`get` fetches.
"""

from sottovoce.tasks.data.cache import DatasetMissing, is_cached, root
from sottovoce.tasks.data.fetch import get
from sottovoce.tasks.data.images import ImageData
from sottovoce.tasks.data.loading import load, load_images, load_texts, path, weights
from sottovoce.tasks.data.registry import names, spec
from sottovoce.tasks.data.sources import Member, Source
from sottovoce.tasks.data.specs import Counts, DatasetSpec
from sottovoce.tasks.data.texts import TextData

__all__ = [
    "Counts",
    "DatasetMissing",
    "DatasetSpec",
    "ImageData",
    "Member",
    "Source",
    "TextData",
    "get",
    "is_cached",
    "load",
    "load_images",
    "load_texts",
    "names",
    "path",
    "root",
    "spec",
    "weights",
]
