# Two commands do everything: `make demo` shows the main job, `make test` checks the project.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test clean

setup: .venv/ready

# torch goes first and pinned: everything after it then finds a version it accepts.
.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

demo: setup
	$(BIN)/holmes demo

test: setup
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest

clean:
	rm -rf .venv build *.egg-info src/*.egg-info
