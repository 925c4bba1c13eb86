"""What is in the cache, in memory or as files. Nothing is ever fetched here."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, cast, overload

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks.data import cache
from sottovoce.tasks.data.images import ImageData
from sottovoce.tasks.data.records import Texts
from sottovoce.tasks.data.registry import spec as find
from sottovoce.tasks.data.registry import spec_of_kind
from sottovoce.tasks.data.texts import TextData

ImagesName = Literal["mnist", "fashion-mnist", "cifar-10", "tiny-imagenet"]
TextsName = Literal[
    "imdb",
    "amazon-snippets",
    "movie-snippets",
    "rotten-tomatoes",
    "snli",
    "mnli",
    "vitaminc",
    "amazon-polarity",
]


@overload
def load(name: ImagesName) -> ImageData: ...
@overload
def load(name: TextsName) -> TextData: ...
@overload
def load(name: str) -> Any: ...
def load(name: str) -> ImageData | TextData:
    """The images or texts called ``name`` from the cache, as :class:`ImageData` or :class:`TextData`.

    Raises:
        ConfigurationError: the name is not known, or is one of weights, which :func:`weights` gives.
        DatasetMissing: it is not in the cache; the message holds the command that gets it.
        DataError: the cached copy is damaged.
    """
    spec = find(name)
    if spec.kind == "weights":
        raise ConfigurationError(f"{name} holds weights, which are files: take data.weights({name!r}).")
    content, provenance = cache.read(spec)
    parts = {part.name: getattr(content, part.name) for part in fields(content)}
    return (TextData if isinstance(content, Texts) else ImageData)(spec=spec, provenance=provenance, **parts)


def load_images(name: str) -> ImageData:
    """The images called ``name``, as :func:`load` does; a name of another kind is a ConfigurationError."""
    return load(cast(ImagesName, spec_of_kind(name, "images").name))


def load_texts(name: str) -> TextData:
    """The texts called ``name``, as :func:`load` does; a name of another kind is a ConfigurationError."""
    return load(cast(TextsName, spec_of_kind(name, "texts").name))


def weights(name: str) -> dict[str, Path]:
    """The files of the weights called ``name`` by their base names, each checked against its noted hash.

    Raises:
        ConfigurationError: the name is not known, or is not one of weights.
        DatasetMissing: they are not in the cache.
        DataError: the cached copy is damaged.
    """
    return cache.files(spec_of_kind(name, "weights"))


def path(name: str) -> Path:
    """Where ``name`` is in the cache: one file for images and texts, a folder for weights.

    Raises:
        ConfigurationError: the name is not known.
        DatasetMissing: it is not in the cache.
    """
    spec = find(name)
    cache.require(spec)
    return cache.place(spec)
