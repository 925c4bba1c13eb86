"""The methods: one algorithm, one file; each reads like its paper."""

from sottovoce.methods.base import Method, Moment, uses_public
from sottovoce.methods.dope_sgd import DopeSGD
from sottovoce.methods.dpmd import DPMD
from sottovoce.methods.dpsgd import DPSGD
from sottovoce.methods.dpzero import DPZero
from sottovoce.methods.gep import GEP
from sottovoce.methods.pazo_m import PazoM
from sottovoce.methods.pazo_p import PazoP
from sottovoce.methods.pazo_s import PazoS
from sottovoce.methods.plain import SGD, MeZO, PlainMethod

__all__ = [
    "DPMD",
    "DPSGD",
    "GEP",
    "SGD",
    "DPZero",
    "DopeSGD",
    "MeZO",
    "Method",
    "Moment",
    "PazoM",
    "PazoP",
    "PazoS",
    "PlainMethod",
    "uses_public",
]
