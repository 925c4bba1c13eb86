"""Sottovoce: optimisation under differential privacy, where the optimiser only hears a whisper of the data."""

from importlib.metadata import version

from sottovoce import losses, planning, smoothing, stationarity, testing
from sottovoce.fit import Run, evaluate, fit
from sottovoce.methods import DPMD, DPSGD, GEP, SGD, DopeSGD, DPZero, MeZO, PazoM, PazoP, PazoS
from sottovoce.minimize import Certificate, MinimizeResult, minimize
from sottovoce.objective.strategies import ObjectiveWarning
from sottovoce.places import ledger_path
from sottovoce.privacy.budget import Budget
from sottovoce.privacy.errors import (
    BudgetExhausted,
    ConfigurationError,
    DataError,
    LedgerConflict,
    LedgerCorrupt,
    PlanViolation,
    PrivacyError,
    PrivacyWarning,
    QueryError,
    SottovoceError,
)
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.statement import Statement
from sottovoce.session import Session, Step
from sottovoce.update import Update

__version__ = version("sottovoce")

__all__ = [
    "DPMD",
    "DPSGD",
    "GEP",
    "SGD",
    "Budget",
    "BudgetExhausted",
    "Certificate",
    "ConfigurationError",
    "DPZero",
    "DataError",
    "DopeSGD",
    "Ledger",
    "LedgerConflict",
    "LedgerCorrupt",
    "MeZO",
    "MinimizeResult",
    "ObjectiveWarning",
    "PazoM",
    "PazoP",
    "PazoS",
    "PlanViolation",
    "PrivacyError",
    "PrivacyWarning",
    "QueryError",
    "Run",
    "Session",
    "SottovoceError",
    "Statement",
    "Step",
    "Update",
    "evaluate",
    "fit",
    "ledger_path",
    "losses",
    "minimize",
    "planning",
    "smoothing",
    "stationarity",
    "testing",
]
