"""Every promise of docs/security.md names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = re.compile(r"`([a-z_]+/test_[a-z_]+\.py)(?:::(test_\w+))?`")


def promises() -> list[tuple[str, list[tuple[str, str]]]]:
    """Each promise with the tests beside it."""
    found, inside = [], False
    for line in PAGE.splitlines():
        if line.startswith("| promise "):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("| ---"):
            promise, tests = (cell.strip() for cell in line.strip("|").split(" | "))
            found.append((promise, NAMED.findall(tests)))
    return found


def test_every_promise_has_a_test() -> None:
    assert len(promises()) > 40
    assert [promise for promise, tests in promises() if not tests] == []


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE))))
def test_every_test_that_is_named_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert name in functions if name else any(each.startswith("test_") for each in functions)
