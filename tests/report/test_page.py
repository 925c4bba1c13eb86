import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_fakes import INFINITE, NAN, comparison, entry, plain_statement, private_statement, sweep

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.report import words, write

FACTS = {"Data": "handwritten digits, public data treated as private", "Command": "make demo"}
VOID = {"meta", "img", "source", "br", "link"}


class Page(HTMLParser):
    """Checks that every element is closed where it was opened, and gathers what the tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        assert len(attrs) == len(dict(attrs)), f"an attribute of {tag} is given twice"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).replace(words.SPACE, " ").split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def written(folder: Path, entries, **changes) -> tuple[Path, str, Page]:
    path = write(entries, folder, **{"title": "A comparison", "intro": "What was done.", "facts": FACTS, **changes})
    text = path.read_text(encoding="utf-8")
    return path, text, Page(text)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return written(tmp_path_factory.mktemp("report") / "out" / "demo", comparison())


def test_the_page_is_written_with_its_numbers_beside_it(demo):
    path, text, _ = demo
    assert path.name == "report.html"
    assert {file.name for file in path.parent.iterdir()} == {"report.html", "entries.json", "comparison.csv"}
    assert text.startswith("<!DOCTYPE html>")


def test_the_page_needs_no_script_and_no_network(demo):
    _, text, page = demo
    assert not page.all("script")
    assert not page.all("link")
    assert "http" not in text
    assert "url(" not in text
    for tag in ("img", "source"):
        for attributes in page.all(tag):
            assert str(attributes.get("src") or attributes.get("srcset")).startswith("data:image/png;base64,")
    assert {attributes["href"] for attributes in page.all("a")} == {"comparison.csv", "entries.json"}


def test_the_headline_is_the_first_thing_on_the_page(demo):
    _, _, page = demo
    assert len(page.all("h1")) == 1
    assert "DP-SGD reaches 93.1 % where SGD without privacy reaches 98.0 %: privacy costs 4.9 points." in page.text
    assert page.text.index("privacy costs") < page.text.index("What was done.")


def test_every_picture_has_a_dark_twin_and_words(demo):
    _, _, page = demo
    pictures, dark = page.all("img"), page.all("source")
    assert len(pictures) == len(dark) == 2
    for picture, twin in zip(pictures, dark, strict=True):
        assert picture["src"] != twin["srcset"]
        assert "prefers-color-scheme: dark" in (twin["media"] or "")
        for name in ("DP-SGD (private)", "SGD (NOT PRIVATE, dashed)"):
            assert name in (picture["alt"] or "")
    assert len({picture["alt"] for picture in pictures}) == 2


def test_every_reference_is_marked_in_table_and_statement(demo):
    _, text, page = demo
    marks = [attributes for attributes in page.all("strong") if attributes.get("class") == "mark"]
    assert len(marks) == 4  # two references, in the table and on their statements
    assert text.count('<tr role="row" class="reference">') == text.count('<tr role="row" class="private">') == 2
    rows = [row.split("</tr>")[0] for row in text.split("<tr ")[2:]]
    for row, private in zip(rows, (True, True, False, False), strict=True):
        assert ("NOT PRIVATE" in row) != private
        assert ("no guarantee" in row) != private
        assert ("0.9988" in row) == private


def test_each_run_has_its_statement_and_its_settings(demo):
    _, text, page = demo
    assert len(page.all("details")) == 4
    assert text.count("Made with") == 4
    for words_of_it in ("(1, 1e-5)-differential privacy, per record", "none: this run is NOT PRIVATE", "batch size"):
        assert words_of_it in page.text


def test_what_must_be_known_is_there(demo):
    _, _, page = demo
    for heading in ("How to read this", "What epsilon means", "Who is protected", "Why runs without privacy are here"):
        assert heading in page.text
    assert "What is not covered" in page.text
    assert "public data treated as private" in page.text
    assert "make demo" in page.text


def test_the_table_can_be_read_by_machines_that_speak(demo):
    _, _, page = demo
    scopes = [attributes.get("scope") for attributes in page.all("th")]
    assert scopes == ["col"] * 5 + ["row"] * 4
    assert {attributes.get("role") for attributes in page.all("td")} == {"cell"}


def test_two_writings_of_the_same_runs_are_equal(demo, tmp_path):
    path, _, _ = demo
    again, _, _ = written(tmp_path, list(reversed(comparison())))
    for name in ("report.html", "entries.json", "comparison.csv"):
        assert (path.parent / name).read_bytes() == (again.parent / name).read_bytes()


def test_the_csv_has_one_line_for_each_run(demo):
    path, _, _ = demo
    with (path.parent / "comparison.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "name", "private", "epsilon", "epsilon_spent", "delta", "neighbours", "accuracy", "seconds",
        "peak_memory_mb", "steps", "trains_on", "note",
    ]  # fmt: skip
    assert [row["name"] for row in rows] == ["DP-SGD", "DPZero", "SGD", "MeZO"]
    assert rows[0]["private"] == "True"
    assert (float(rows[0]["epsilon_spent"]), float(rows[0]["accuracy"])) == (0.99871, 0.931)
    assert (rows[2]["private"], rows[2]["epsilon"], rows[2]["epsilon_spent"], rows[2]["delta"]) == ("False", "", "", "")


def test_the_json_holds_everything(demo):
    path, _, _ = demo
    values = json.loads((path.parent / "entries.json").read_text())
    assert values["schema"] == 1
    assert values["headline"].startswith("At epsilon")
    assert values["facts"] == FACTS
    first, reference = values["entries"][0], values["entries"][2]
    assert first["history"] == comparison()[3].history
    assert first["statement"]["epsilon_spent"] == 0.99871
    assert first["settings"] == {"lr": 0.05, "batch size": 256}
    assert reference["private"] is False
    assert reference["statement"]["epsilon"] is None


def test_every_text_is_escaped(tmp_path):
    attack = "<script>alert('x')</script>&\"'"
    hostile = entry(
        f"n{attack}",
        0.9,
        note=f"t{attack}",
        settings={f"k{attack}": f"v{attack}"},
        statement=private_statement(
            relation=attack, neighbours=attack, warnings=(attack,), sampler=({"sampling": attack},)
        ),
    )
    reference = entry(f"r{attack}", 0.95, private=False, statement=plain_statement(relation=attack))
    _, text, page = written(
        tmp_path, [hostile, reference], title=attack, intro=attack, facts={attack: attack, f"Command {attack}": attack}
    )
    assert "<script" not in text
    assert not page.all("script")
    assert page.text.count("<script>alert('x')</script>&\"'") >= 15
    for picture in page.all("img"):
        assert set(picture) == {"src", "width", "height", "alt"}


def test_broken_numbers_break_nothing(tmp_path):
    broken = entry(
        "Broken",
        NAN,
        seconds=INFINITE,
        peak_memory=NAN,
        history=[{"step": 1, "seconds": NAN, "accuracy": NAN}],
        settings={"lr": INFINITE, "path": tmp_path, "shape": (1, 28)},
        statement=private_statement(noise_multiplier=INFINITE, grids=({"bound": NAN, "grid": INFINITE},)),
    )
    odd = entry("Odd", 0.8, statement=private_statement(epsilon=INFINITE), history=[], peak_memory=-3.0, seconds=0.0)
    path, _, page = written(tmp_path, [broken, odd])
    assert "No learning curves" in page.text
    assert "not measured" in page.text
    assert "no guarantee" in page.text
    assert "nan" not in page.text.split()
    assert "inf" not in page.text.split()
    values = json.loads((path.parent / "entries.json").read_text(), parse_constant=pytest.fail)
    assert values["entries"][0]["accuracy"] is None
    with (path.parent / "comparison.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["accuracy"] == ""


def test_one_private_run_is_a_page_too(tmp_path):
    _, _, page = written(tmp_path, [entry("DP-SGD", 0.9, history=[])], intro=" ", facts={})
    assert "no run without privacy is here" in page.text
    assert "NOT PRIVATE" not in page.text
    assert "How this was made" not in page.text


def test_references_alone_are_called_so(tmp_path):
    _, _, page = written(tmp_path, [entry("SGD", 0.9, private=False)])
    assert "Nothing here is private" in page.text
    assert "Who is protected" not in page.text
    assert "Solid, coloured: private." not in page.text


def test_warnings_are_seen_before_a_statement_is_opened(tmp_path):
    text = "delta 0.1 is above 1/records"
    _, _, page = written(tmp_path, [entry("A", 0.9, history=[], statement=private_statement(warnings=(text,)))])
    assert "with warnings" in page.text
    assert text in page.text


def test_nothing_is_written_when_there_is_nothing_to_report(tmp_path):
    with pytest.raises(ConfigurationError, match="entries is empty"):
        write([], tmp_path / "out", title="", intro="", facts={})
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    return written(tmp_path_factory.mktemp("sweep"), sweep())


def cells(text: str) -> list[list[str]]:
    """The rows of the first table of the page."""
    body = text.split("<tbody>")[1].split("</tbody>", maxsplit=1)[0]
    return [[Page(cell).text for cell in re.findall(r"<t[dh].*?</t[dh]>", row)] for row in body.split("<tr ")[1:]]


def test_several_epsilons_get_a_figure_and_its_numbers(swept):
    _, text, page = swept
    assert len(page.all("img")) == len(page.all("source")) == 3
    assert page.text.count("What privacy costs:") == 1
    assert cells(text) == [
        ["DP-SGD", "88.1 %", "94.1 %", "95.2 %"],
        ["PAZO-P", "91.2 %", "93.5 %", "–"],
        ["public only", "public data 93.0 %"],
        ["SGD", "not private 97.8 %"],
    ]
    assert text.count('colspan="3"') == 2


def test_the_best_of_each_epsilon_is_bold(swept):
    _, text, _ = swept
    table = text.split("<tbody>")[1].split("</tbody>")[0].replace(words.SPACE, " ")
    assert [part.split("<")[0] for part in table.split("<strong>")[1:]] == ["94.1 %", "95.2 %", "91.2 %"]


def test_one_epsilon_gets_neither(demo):
    _, text, page = demo
    assert "against epsilon" not in text
    assert "matrix" not in text.split("</style>")[1]
    assert "The runs at epsilon" not in page.text


def test_the_table_of_runs_has_one_row_a_method_and_says_at_which_epsilon(swept):
    _, text, page = swept
    assert text.count('<tr role="row" class="private">') == 2
    assert "The runs at epsilon" in page.text.replace("\xa0", " ")
    assert "The private runs are those at epsilon 1." in page.text


def test_the_statement_of_every_run_is_there_in_its_own_figures(swept):
    _, _, page = swept
    assert len(page.all("details")) == 4
    for epsilon in ("0.1", "1", "3"):
        assert f"({epsilon}, 1e-5)-differential privacy" in page.text
    assert page.text.count("the same, but for") == 3
    assert "also run at epsilon 0.1 and 3" in page.text
    assert "88.1 % in 50.0 s" in page.text


def test_warnings_of_any_run_of_a_method_are_seen(tmp_path):
    warned = entry("A", 0.8, statement=private_statement(epsilon=0.1, warnings=("wide delta",)))
    _, _, page = written(tmp_path, [entry("A", 0.9), warned])
    assert "with warnings" in page.text
    assert "wide delta" in page.text


def test_public_data_alone_carries_its_own_mark_and_not_that_of_the_references(swept):
    _, text, page = swept
    assert page.text.count("PUBLIC DATA ONLY") == 3  # in the table, below it, on its statement
    assert "no private record was read" in page.text
    assert [a.get("class") for a in page.all("strong")].count("mark") == 2
    row = next(part for part in text.split("<tr ") if 'class="public"' in part and "data-label" in part)
    assert "NOT PRIVATE" not in row.split("</tr>")[0]


def test_programs_get_every_run(swept):
    path, _, _ = swept
    with (path.parent / "comparison.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], row["epsilon"]) for row in rows] == [
        ("DP-SGD", "1.0"), ("DP-SGD", "0.1"), ("DP-SGD", "3.0"), ("PAZO-P", "1.0"), ("PAZO-P", "0.1"),
        ("public only", ""), ("SGD", ""),
    ]  # fmt: skip
    assert [row["trains_on"] for row in rows[2:6]] == ["private", "private and public", "private and public", "public"]
    values = json.loads((path.parent / "entries.json").read_text())
    assert [one["kind"] for one in values["entries"]] == ["private"] * 5 + ["public", "reference"]
