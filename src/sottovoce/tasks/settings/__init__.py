"""Learning tasks by name: data with private, public, validation and test parts, a model, and a grid to choose from.

They are those of the PAZO paper (Gong and Li 2025) where its data can be had, and stand-ins, named so, elsewhere.
"""

from sottovoce.tasks.settings.catalogue import load, names
from sottovoce.tasks.settings.setting import Setting

__all__ = ["Setting", "load", "names"]
