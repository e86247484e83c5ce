# `make demo` shows the main job, `make check` checks a change in about a minute, `make test` checks everything.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo check test docs browser clean

# Where Python is told not to keep what it compiles, every process of the tests would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

setup: .venv/ready

# torch goes first and pinned: everything after it then finds a version it accepts. pip would compile everything on
# one core; afterwards it is done on all of them. Templates among the files compile nowhere, and need not.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[test]'
	$(BIN)/python -m compileall -qq --workers 0 .venv/lib || true
	touch $@

demo: setup
	$(BIN)/holmes demo

# The page is tested in a real browser. Where there is none it is installed if that can be done, as it can in a
# container; elsewhere the tests of the page are skipped, and pytest says so at its end. Debian has chromium without
# its windows, which takes two thirds of the time; other systems have the whole one.
BROWSERS := chromium-headless-shell chromium chromium-browser google-chrome
INSTALL := apt-get install -y -qq --no-install-recommends
browser:
	@$(foreach name,$(BROWSERS),command -v $(name) >/dev/null ||) { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing chromium" && \
	  { $(INSTALL) chromium-headless-shell || { apt-get update -qq && $(INSTALL) chromium-headless-shell; } || \
	    $(INSTALL) chromium; } >/dev/null 2>&1; } || \
	echo "no chromium: the tests of the page will be skipped (apt-get install chromium)"
	@PATH="$$PATH:/usr/sbin" command -v nginx >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing nginx" && \
	  $(INSTALL) nginx-light >/dev/null 2>&1; } || \
	echo "no nginx: the tests of the proxy will be skipped (apt-get install nginx-light)"

# Up to four processes run the tests, file by file: the tests of a file share what they prepare. All tests together
# wait a quarter of their time, for child processes, browsers and sockets, so they get one process more than cores.
BY_FILE := --maxprocesses 4 --dist loadfile --no-loadscope-reorder
ONE_MORE := $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")

# Before every commit: style, types and the fast tests (all but those of the files in tests/conftest.py). Types are
# checked while the tests run.
check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & types=$$!; $(BIN)/pytest --numprocesses logical $(BY_FILE) -m "not slow"; tests=$$?; wait $$types && exit $$tests

test: setup browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses $(ONE_MORE) $(BY_FILE)

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open build/site/index.html"

clean:
	rm -rf .venv build *.egg-info src/*.egg-info
