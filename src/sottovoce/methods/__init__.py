"""The methods: one algorithm, one file; each reads like its paper."""

from sottovoce.methods.base import Method
from sottovoce.methods.dpsgd import DPSGD
from sottovoce.methods.dpzero import DPZero
from sottovoce.methods.plain import SGD, MeZO, PlainMethod

__all__ = ["DPSGD", "SGD", "DPZero", "MeZO", "Method", "PlainMethod"]
