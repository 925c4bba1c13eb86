"""Dependencies point downwards only (the rooms of the house, from the cellar up)."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "sottovoce"

# room -> the rooms it may import from, itself always included
ALLOWED = {
    "privacy": set[str](),
    "testing": {"privacy.entropy"},
    "losses": set[str](),
    "objective": {"privacy.errors", "privacy.trees"},
    "tasks": {"losses", "objective", "privacy.errors"},
    "arguments": {"privacy.errors"},
    "toml": set[str](),
    "binding": {"privacy.errors", "toml"},
    "queries": {"objective"},
    "update": {"arguments", "objective", "privacy.errors"},
    "inputs": {"privacy"},
    "overlap": {"inputs", "privacy.errors"},
    "public": {"inputs", "objective", "privacy.errors", "privacy.trees"},
    "methods": {"arguments", "queries", "objective", "update", "public", "privacy"},
    "horizon": {"arguments", "privacy"},
    "reference": {"objective", "privacy"},
    "session": {
        "arguments",
        "places",
        "horizon",
        "inputs",
        "methods",
        "objective",
        "overlap",
        "privacy",
        "public",
        "reference",
        "tracking",
        "update",
    },
    "fit": {"arguments", "inputs", "methods", "objective", "overlap", "privacy", "session"},
    "report": {"fit", "privacy"},
    "demo": {"fit", "losses", "methods", "privacy", "report", "tasks", "update"},
    "bench": {"fit", "losses", "methods", "objective", "privacy", "session", "tasks", "update"},
    "balances": {"privacy"},
    "estimators": {"objective", "privacy.trees"},
    "gradient_estimators": {"objective"},
    "smoothing": {"arguments", "privacy.errors"},
    "minimize_arguments": {"arguments", "inputs", "objective", "planning", "privacy", "tracking"},
    "minimize": {
        "minimize_arguments",
        "tracking",
        "overlap",
        "arguments",
        "estimators",
        "gradient_estimators",
        "inputs",
        "methods",
        "objective",
        "places",
        "planning",
        "privacy",
    },
    "planning": {"arguments", "privacy"},
    "stationarity": {"arguments", "privacy.errors"},
    "places": set[str](),
    "tracking": {"places", "privacy"},
}


def room_of(module: str) -> str:
    return module.removeprefix("sottovoce.").split(".")[0]


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute in this project"
            found.add(node.module or "")
            if node.module == "sottovoce":
                found |= {f"sottovoce.{alias.name}" for alias in node.names}
    return {name for name in found if name == "sottovoce" or name.startswith("sottovoce.")}


def files() -> list[tuple[str, Path]]:
    return [(room_of(".".join(p.relative_to(ROOT).with_suffix("").parts)), p) for p in sorted(ROOT.rglob("*.py"))]


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_what_lies_below_it(room: str):
    for owner, path in files():
        if owner != room:
            continue
        for name in imports_of(path):
            allowed = any(
                name == f"sottovoce.{below}" or name.startswith(f"sottovoce.{below}.")
                for below in {room, *ALLOWED[room]}
            )
            assert allowed, f"{path.relative_to(ROOT)} imports {name}; {room} may use only {sorted(ALLOWED[room])}"


def test_the_trusted_room_stays_small():
    """Code lines without docstrings, comments and blanks: small enough to be read whole by a reviewer."""
    total = 0
    for owner, path in files():
        if owner == "privacy":
            total += code_lines(path.read_text())
    assert 0 < total < 1500, f"privacy/ has {total} lines of code; 1,500 is the limit"


def code_lines(source: str) -> int:
    lines: set[int] = set()
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        # A bare string is a docstring, of a module, class, function or attribute.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number, line in enumerate(source.splitlines(), 1):
        if line.strip() and not line.strip().startswith("#") and number not in docstrings:
            lines.add(number)
    return len(lines)
