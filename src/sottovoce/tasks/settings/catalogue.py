"""The known settings by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks.naming import nearest, require_known_options
from sottovoce.tasks.settings import images, inference, pretrained_images, reviews, verbal
from sottovoce.tasks.settings.setting import Setting

_MAKERS: dict[str, Callable[..., Setting]] = {
    "mnist": images.mnist,
    "fashion-mnist": images.fashion_mnist,
    "cifar-10": images.cifar_10,
    "cifar-10-pretrained": pretrained_images.cifar_10_pretrained,
    "tiny-imagenet": pretrained_images.tiny_imagenet,
    "imdb": reviews.imdb,
    "nli": inference.nli,
    "mnli": inference.mnli,
    "amazon-polarity": reviews.amazon_polarity,
    "verbalizer": verbal.verbalizer,
}


def names() -> tuple[str, ...]:
    """The names that :func:`load` knows."""
    return tuple(_MAKERS)


def load(name: str, *, seed: int = 0, limit: int | None = None, **options: Any) -> Setting:
    """The setting called ``name``. Its data must be in the cache; nothing is downloaded.

    Args:
        name: one of :func:`names`.
        seed: chooses the public permutation that cuts the training part, and nothing else. It may be published.
        limit: at most so many private records, for quick runs; the other parts stay as they are.
        options: those of the setting, such as ``width=`` of ``cifar-10``.

    Raises:
        ConfigurationError: the name or an option is not known, or an option is out of range.
        DatasetMissing: data or weights are not in the cache; the message holds the one command that gets them.
        DataError: a cached copy is damaged.
    """
    if name not in _MAKERS:
        raise ConfigurationError(f"unknown setting {name!r}: {nearest(name, _MAKERS)}")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ConfigurationError(f"seed={seed!r}: a whole number is needed.")
    maker = _MAKERS[name]
    require_known_options(maker, options, f"the setting {name!r}", hidden=("seed", "limit"))
    return maker(seed=seed, limit=limit, **options)
