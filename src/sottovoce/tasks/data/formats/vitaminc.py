"""VitaminC as a task of BIG-bench: evidence and claim in one string, and a score for each of three answers."""

from __future__ import annotations

from collections.abc import Iterator

from sottovoce.tasks.data.archives import Part
from sottovoce.tasks.data.formats.reading import malformed, value
from sottovoce.tasks.data.records import Record, Texts, collect
from sottovoce.tasks.data.specs import DatasetSpec

_BETWEEN = "\nClaim: "
_MEANING = {"True": "entailment", "Neither": "neutral", "False": "contradiction"}


def read_parts(parts: Iterator[Part], spec: DatasetSpec) -> Texts:
    """The member ``examples``."""
    records: list[Record] = []
    for member, stream in parts:
        origin = f"{spec.name}, {member.name}"
        task = value(stream.read(), origin)
        examples = task.get("examples") if isinstance(task, dict) else None
        if not isinstance(examples, list):
            raise malformed(origin, "it has no list of examples")
        records += [_record(example, spec, origin) for example in examples]
    return collect(records)


def _record(example: object, spec: DatasetSpec, origin: str) -> Record:
    match example:
        case {"input": str(both), "target_scores": {"True": _, "Neither": _, "False": _, **others} as scores}:
            answers = [answer for answer, score in scores.items() if score == 1]
            evidence, between, claim = both.partition(_BETWEEN)
            if not others and len(answers) == 1 and between:
                return (evidence, claim), spec.classes.index(_MEANING[answers[0]])
    raise malformed(origin, "an example that is not evidence, claim and one right answer of True, False and Neither")
