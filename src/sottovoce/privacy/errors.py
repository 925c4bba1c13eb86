"""The library's exceptions. Messages say what was given, what is needed, and how to mend it.

None of these is ever raised because of the value of a private record.
"""


class SottovoceError(Exception):
    """Base of every error that this library raises on purpose."""


class ConfigurationError(SottovoceError, ValueError):
    """An argument or a configuration file is wrong; no budget was spent."""


class DataError(SottovoceError, ValueError):
    """The data set as a whole (its length, shapes or types) cannot be used; no budget was spent."""


class QueryError(SottovoceError, TypeError):
    """The user's loss failed on the public example, before any private record was touched."""


class PrivacyError(SottovoceError):
    """Base of the errors that protect the guarantee."""


class BudgetExhausted(PrivacyError):
    """What was asked for costs more than what is left."""


class PlanViolation(PrivacyError):
    """A release that the frozen plan does not contain was asked for; the data was not looked at."""


class LedgerConflict(PrivacyError):
    """The ledger does not allow this run (another grant, another relation, a lost lease, a vanished file)."""


class LedgerCorrupt(PrivacyError):
    """The ledger file is not one, or not of a known format; it was left untouched."""


class PrivacyWarning(UserWarning):
    """Something weakens the guarantee or its usual reading; the statement repeats it."""
