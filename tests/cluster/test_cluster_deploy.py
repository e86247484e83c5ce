"""What `deploy/` promises holds: the manifest says what KubeRay and our own command line understand."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "deploy" / "kuberay.yaml"


@pytest.fixture
def job() -> dict[str, Any]:
    return documents()["RayJob"]


def documents() -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}


def pods(job: dict[str, Any]) -> dict[str, Any]:
    cluster = job["spec"]["rayClusterSpec"]
    return {
        "head": cluster["headGroupSpec"]["template"],
        **{group["groupName"]: group["template"] for group in cluster["workerGroupSpecs"]},
    }


def test_the_entry_point_is_a_command_that_exists(job: dict[str, Any]) -> None:
    from holmes.cli.main import app

    program, command, *words = shlex.split(job["spec"]["entrypoint"])
    assert (program, command) == ("holmes", "serve")
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    given = serve.make_context("serve", list(words)).params
    assert given["ray"] == "auto" and given["index"] == ["/shards"] and given["host"] == "0.0.0.0"
    with pytest.raises(Exception, match="No such option"):
        serve.make_context("serve", [*words, "--replicas", "2"])
    workers = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert sum(group["replicas"] for group in workers) > given["copies"], "one may be lost"
    assert all(group["minReplicas"] <= group["replicas"] <= group["maxReplicas"] for group in workers)
    for pod in pods(job).values():
        (container,) = pod["spec"]["containers"]
        mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert {*given["index"], given["cache"]} <= mounted.keys()
        assert set(mounted.values()) == {volume["name"] for volume in pod["spec"]["volumes"]}


def test_the_version_of_ray_is_the_pinned_one(job: dict[str, Any]) -> None:
    import ray

    (pinned,) = re.findall(r'"ray==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == pinned == ray.__version__


def test_nothing_runs_on_the_head_and_failures_are_noticed_soon(job: dict[str, Any]) -> None:
    from small_cluster import HEALTH

    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    (container,) = head["template"]["spec"]["containers"]
    said = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert HEALTH.items() <= said.items() and "HOLMES_TOKEN" in said
    image = (ROOT / "deploy" / "Containerfile").read_text()
    assert all(f"{name}={value}" in image for name, value in HEALTH.items())


def test_the_service_leads_to_the_page(job: dict[str, Any]) -> None:
    service, head = documents()["Service"]["spec"], pods(job)["head"]
    assert service["selector"].items() <= head["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in head["spec"]["containers"][0]["ports"]}
    assert ports[service["ports"][0]["targetPort"]] == service["ports"][0]["port"] == 8000


def test_head_and_workers_have_one_image_with_the_version_of_the_project(job: dict[str, Any]) -> None:
    import holmes

    images = {container["image"] for pod in pods(job).values() for container in pod["spec"]["containers"]}
    assert images == {f"holmes:{holmes.__version__}"}
    assert f"--tag holmes:{holmes.__version__} ." in (ROOT / "deploy" / "Containerfile").read_text()


def test_the_image_has_what_the_project_needs() -> None:
    image = (ROOT / "deploy" / "Containerfile").read_text()
    assert "--constraint constraints.txt '.[serve,cluster]'" in image
    copied = [name for line in re.findall(r"^COPY (.*) \S+$", image, re.MULTILINE) for name in line.split()]
    assert {"pyproject.toml", "constraints.txt", "src"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)


def test_a_failed_build_of_the_image_is_not_taken_as_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "deploy")
    import try_image

    containerfile, root = tmp_path / "Containerfile", tmp_path / "root"
    containerfile.write_text("WORKDIR /app\nRUN install\nUSER holmes\n")

    def built(run: Any) -> try_image.Image:
        monkeypatch.setattr(try_image.Image, "run", run)
        image = try_image.Image(root, [])
        try_image.build(image, containerfile)
        return image

    def installs(image: try_image.Image, words: list[str]) -> str:
        (image.root / "app" / "installed").touch(exist_ok=False)
        return ""

    def fails(image: try_image.Image, words: list[str]) -> str:
        installs(image, words)
        sys.exit("install ended with 1")

    for _ in range(2):
        with pytest.raises(SystemExit, match="ended with 1"):
            built(fails)
        assert not root.exists()
    assert built(installs).root == root and (root / "app" / "installed").exists()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["root"]
    again = built(fails)  # a whole root is taken as it is, with the settings of the steps
    assert (again.root, again.folder, again.user) == (root, "/app", "holmes")
