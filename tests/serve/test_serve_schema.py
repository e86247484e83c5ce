"""Schemathesis asks what the OpenAPI description allows, and much that it does not: no 5xx, no surprises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from browser import serving
from holmes.serve.settings import ServeSettings
from serve_fakes import PLENTY, build, open_fake

EXAMPLES = 25  # of each operation and mode
# Unknown parameters are ignored, as everywhere; what is asked rightly may still be refused, with a reason.
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("schema")
    with pytest.MonkeyPatch.context() as monkeypatch:
        build(folder)
        index = open_fake(folder / "index", monkeypatch)
        limits = replace(PLENTY, upload=1 << 20, spare=0)  # a full disk is a 507, which is no fault here
        more = {"manage": True, "uploads": folder / "in"}
        with serving(index, ServeSettings(limits=limits, **more)) as address:
            yield schemathesis.openapi.from_url(f"{address}/api/openapi.json")


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_every_answer_is_as_described(schema: Any, mode: GenerationMode) -> None:
    asked, faults = set[str](), list[str]()
    for result in schema.get_all_operations():
        operation = result.ok()
        try:
            asked.update(answers_hold(operation, mode))
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # what takes nothing cannot be asked wrongly
        except (AssertionError, FailureGroup) as error:
            faults.append(f"{operation.label}: {error} {getattr(error, 'exceptions', '')}")
    assert not faults, "\n".join(faults)
    assert {
        "GET /api/search",
        "POST /api/uploads",
        "PATCH /api/uploads/{id}",
        "GET /api/videos/{id}/stream",
    } <= asked
    assert len(asked) >= 10


def answers_hold(operation: Any, mode: GenerationMode) -> set[str]:
    """Ask, and compare with the description; the operation's name if anything was asked."""
    asked = set[str]()

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def holds(case: Any) -> None:
        asked.add(operation.label)
        response = case.call()
        assert response.status_code < 500, (case.as_curl_command(), response.text)
        case.validate_response(response, checks=CHECKS)

    holds()
    return asked
