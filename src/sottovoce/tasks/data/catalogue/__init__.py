"""The entries of the registry, by kind."""

from sottovoce.tasks.data.catalogue.images import IMAGES
from sottovoce.tasks.data.catalogue.texts import TEXTS
from sottovoce.tasks.data.catalogue.weights import WEIGHTS

__all__ = ["IMAGES", "TEXTS", "WEIGHTS"]
