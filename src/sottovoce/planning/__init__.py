"""Theory turned into numbers: from (n, d, L, budget, target) to a schedule and what it guarantees."""

from sottovoce.planning.nonsmooth import every, schedule
from sottovoce.planning.population import records_for_gap, uniform_gap
from sottovoce.planning.problem import NonsmoothProblem
from sottovoce.planning.schedule import OracleName, Schedule

__all__ = ["NonsmoothProblem", "OracleName", "Schedule", "every", "records_for_gap", "schedule", "uniform_gap"]
