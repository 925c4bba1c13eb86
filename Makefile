# Everything from a fresh clone: each target installs what it needs into its own .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: demo test test-all check format clean

.venv/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/.installed-dev: .venv/.installed
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: .venv/.installed  ## train privately on real images, print a table, write out/demo/report.html
	$(BIN)/sottovoce data get mnist
	$(BIN)/sottovoce demo

test: .venv/.installed-dev  ## the whole suite without the slow tests
	$(BIN)/python -m pytest

test-all: .venv/.installed-dev  ## everything, the slow tests included
	$(BIN)/python -m pytest -m ""

check: .venv/.installed-dev  ## lint, format, types, import graph
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m pytest tests/test_import_graph.py

format: .venv/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv out .pytest_cache .ruff_cache
