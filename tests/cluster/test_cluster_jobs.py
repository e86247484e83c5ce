"""Jobs on a real cluster of two nodes: reports, requests and their answers, failures, deaths."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray")
import ray
from small_cluster import SmallCluster

from holmes.cluster.jobs import places_for_jobs, run_jobs_at


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    support = str(Path(__file__).parents[1] / "support")  # where nodes find the jobs
    os.environ["PYTHONPATH"] = os.pathsep.join([support, os.environ.get("PYTHONPATH", "")])
    started = SmallCluster(2)
    yield started.address
    ray.shutdown()
    started.close()


def test_jobs_report_ask_and_end_in_every_way(address):
    assert places_for_jobs(address) == 2
    reports = []
    jobs = iter([("a", 1), ("b", "fail"), ("c", 2), ("d", "die"), ("e", 3)])
    found = {
        finished.job: finished
        for finished in run_jobs_at(
            address,
            "ray_jobs:worker",
            {"factor": 10},
            jobs,
            2,
            lambda asked, send: send(100 * asked["of"]),
            lambda job, value: reports.append((job, value)),
        )
    }
    assert {job: one.result for job, one in found.items()} == {
        "a": 110,
        "b": None,
        "c": 220,
        "d": None,
        "e": 330,
    }
    assert sorted(reports) == [("a", 1), ("c", 2), ("e", 3)]
    assert found["b"].failure == "this job cannot be done" and found["b"].ending is None
    assert "its node died" in found["d"].failure and found["d"].ending is not None
