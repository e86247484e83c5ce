"""Adding and removing through a server with --manage: live progress, and allowed folders only."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.testclient import TestClient

from browser import chromium, launched, serving, until, violations
from holmes.base.processes import Child, Message
from holmes.base.progress import progress_bar, reported_to
from holmes.index.ingest.file_identity import Duplicate
from holmes.index.ingest.skipped import read_skipped, record_skipped
from holmes.index.storage.store import FEATURES, IndexStore
from holmes.media.backbones.base import Identity
from holmes.media.extraction import Failure
from holmes.media.feature_folder import FeatureFolder
from holmes.serve import jobs, models
from holmes.serve.settings import ServeSettings
from index_fakes import WIDTH, FakeJoint, known_encoders
from serve_fakes import FILMS, PLENTY, RATE, add_features, build, client_of, film, open_fake
from waiting import wait_for

NEW = {
    "new/balloon.mp4": [("balloon rises slowly", 4.0, (250, 20, 20))],
    "new/train.mp4": [("train departs", 3.0, (9, 9, 9))],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index, and a feature folder of two more films beside it; adding takes the features."""
    known_encoders(monkeypatch, FakeJoint())
    build(tmp_path)
    features = FeatureFolder.create(tmp_path / "more", Identity("fake", FakeJoint.digest, WIDTH, True), RATE)
    for name, scenes in NEW.items():
        add_features(features, film(tmp_path / "films" / name, scenes), scenes)
    monkeypatch.setattr(jobs, "TARGET", "fake_children:start")
    monkeypatch.setattr("holmes.serve.state.POLL_SECONDS", 0.1)
    return tmp_path


@pytest.fixture
def client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    settings = ServeSettings(manage=True, add_from=(folder / "more",), limits=PLENTY)
    with client_of(open_fake(folder / "index", monkeypatch), settings) as client:
        yield client


def finished(client: TestClient) -> dict[str, Any]:
    wait_for(lambda: client.get("/api/job").json()["state"] != "running")
    return dict(client.get("/api/job").json())


def test_videos_are_added_and_found(client: TestClient, folder: Path) -> None:
    assert client.get("/api/job").json()["state"] == "idle"
    started = client.post("/api/videos", json={"paths": [str(folder / "more")]}).json()
    assert started["state"] == "running"
    again = client.post("/api/videos", json={"paths": [str(folder / "more")]})
    assert again.status_code == 409 and "already" in again.json()["error"]
    job = finished(client)
    assert (job["state"], job["message"]) == ("done", "2 files gave 2 added, 0 already there, 0 left out")
    assert job["done"] == job["total"] == 2
    wait_for(lambda: client.get("/api/index").json()["videos"] == len(FILMS) + 2)
    hit = client.get("/api/search", params={"q": "balloon rises slowly"}).json()["hits"][0]
    assert hit["title"] == "balloon.mp4"


def test_a_removed_video_is_gone_at_once_and_its_file_is_not(client: TestClient, folder: Path) -> None:
    hit = client.get("/api/search", params={"q": "dog runs beach"}).json()["hits"][0]
    assert client.delete(f"/api/videos/{hit['id']}").status_code == 200
    assert client.get(f"/api/videos/{hit['id']}").status_code == 404
    hits = client.get("/api/search", params={"q": "dog runs beach"}).json()["hits"]
    assert hit["name"] not in {other["name"] for other in hits} and len(hits) == len(FILMS) - 1
    assert Path(hit["name"]).exists() and len(IndexStore.open(folder / "index")) == len(FILMS) - 1
    assert client.delete(f"/api/videos/{hit['id']}").status_code == 404


def test_a_reload_beside_another_ends_with_the_new_catalogue(client: TestClient, folder: Path) -> None:
    """A removed video was still found: a poll had refreshed the index, but not yet the catalogue."""
    name = client.get("/api/search", params={"q": "dog runs beach"}).json()["hits"][0]["name"]
    state = client.app.state.server  # type: ignore[attr-defined]
    jobs.remove_video(folder / "index", name)

    async def known_after_a_reload() -> bool:
        await state.reload_if_changed()
        return name in state.catalogue.by_name

    async def both() -> list[bool]:
        return await asyncio.gather(known_after_a_reload(), known_after_a_reload())

    assert client.portal is not None
    assert client.portal.call(both) == [False, False]


def test_only_allowed_folders_are_added_from(client: TestClient, folder: Path) -> None:
    outside = folder / "index"
    (folder / "films" / "beach" / "way out").symlink_to(outside)
    for path, status in (
        (str(outside), 403),
        ("/etc", 403),
        (str(folder / "more" / ".." / "index"), 403),
        (str(folder / "films" / "beach" / "way out"), 403),
        (f"{folder}/more-of-it", 409),
        ("more", 403),
        ("a\0b", 403),
        (str(folder / "more" / "absent"), 409),
    ):
        answer = client.post("/api/videos", json={"paths": [path]})
        assert answer.status_code == status and answer.json()["error"], path
        assert ("no such file or folder" in answer.json()["error"]) == (status == 409)
    assert client.get("/api/job").json()["state"] == "idle"


def test_paths_are_completed_in_allowed_folders_only(client: TestClient, folder: Path) -> None:
    def completed(prefix: str) -> list[str]:
        return list(client.get("/api/paths", params={"prefix": prefix}).json()["paths"])

    (folder / "more" / "holiday").mkdir()
    (folder / "more" / "notes.txt").touch()
    (folder / "more" / "clip.mp4").touch()
    (folder / "more" / "out").symlink_to("/etc")
    assert completed(f"{folder}/more/") == [
        f"{folder}/more/{name}" for name in ("clip.mp4", "holiday/", "videos/")
    ]
    assert completed(f"{folder}/more/h") == [f"{folder}/more/holiday/"]
    assert f"{folder}/more/" in completed(f"{folder}/mo") and f"{folder}/more/" in completed("")
    for outside in ("/etc/", f"{folder}/more/../index/", f"{folder}/more/out/", "relative", "a\0b"):
        assert all(path.startswith(str(folder)) and "index" not in path for path in completed(outside))
    assert completed("/etc/") == []


def test_a_copy_is_named_and_counted() -> None:
    news = {"added": 1, "unchanged": 0, "moved": 0, "failures": [{}], "copies": [{}]}
    assert jobs.summary_of(news) == "3 files gave 1 added, 0 already there, 1 copy, 1 left out"


def test_the_time_left_is_that_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Videos were seen for 100 s; half of their words took 10 s."""
    job, now = jobs.Job.__new__(jobs.Job), 0.0
    job.state, job._began = models.Job(state="running"), now
    monkeypatch.setattr(jobs.time, "monotonic", lambda: now)
    child = cast(Child, None)
    for now, what, done in ((50, "1 of 2 videos", 50), (100, "2 of 2 videos", 100), (100, "hearing", 0)):  # noqa: B007
        job._hear(child, Message("report", [what, done, 100]))
    now = 110
    job._hear(child, Message("report", ["hearing", 50, 100]))
    assert job.state.seconds_left == 10


def test_what_goes_wrong_is_told(client: TestClient, folder: Path) -> None:
    (folder / "more" / "features.json").write_text("{}")
    client.post("/api/videos", json={"paths": [str(folder / "more")]})
    job = finished(client)
    assert job["state"] == "failed" and "does not describe a folder of features" in job["message"]


def test_a_process_that_dies_is_noticed(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "TARGET", "fake_children:start_crashing")
    client.post("/api/videos", json={"paths": [str(folder / "more")]})
    job = finished(client)
    assert job["state"] == "failed" and "ended by SIGABRT" in job["message"]


def test_every_job_has_its_own_state(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F7: the end of the first process was taken for the failure of the second job."""
    paths = {"paths": [str(folder / "more")]}
    assert client.post("/api/videos", json=paths).status_code == 200
    assert finished(client)["state"] == "done"
    monkeypatch.setattr(jobs, "TARGET", "fake_children:start_when_told")
    assert client.post("/api/videos", json=paths).json()["state"] == "running"
    first, second = (client.app.state.jobs._jobs[at] for at in (0, -1))  # type: ignore[attr-defined]
    if first is not second:
        wait_for(lambda: not first.child.alive)
    assert client.get("/api/job").json()["state"] == "running"
    third = client.post("/api/videos", json=paths)
    assert third.status_code == 409 and "already being added" in third.json()["error"]
    (folder / "go").touch()
    job = finished(client)
    assert (job["state"], job["added"]) == ("done", 0)


def test_the_end_of_the_server_ends_every_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F7: closing ended only the newest process."""
    monkeypatch.setattr(jobs, "TARGET", "fake_children:start_sleeping")
    started = jobs.Jobs(ServeSettings(manage=True, add_from=(folder,)))
    for _ in range(2):
        started.add(folder / "index", [str(folder / "more")], [])
        job = started._jobs[-1]
        job.state = job.state.model_copy(update={"state": "failed"})  # as if it had failed and not ended yet
    first, second = started._jobs
    assert first.child.alive and second.child.alive
    asyncio.run(started.close())
    assert not first.child.alive and not second.child.alive


def test_a_killed_server_leaves_no_process_behind(folder: Path) -> None:
    """F12: after SIGKILL of the server its adding process lived on."""
    server = subprocess.Popen(
        [sys.executable, "-c", KILLED.format(path=sys.path, folder=str(folder))],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    children = [int(pid) for pid in server.stdout.readline().split()]
    assert len(children) == 2 and all(map(alive, children))
    server.kill()
    server.communicate()
    wait_for(lambda: not any(map(alive, children)))


# A process that has started a job and a decoder, and says which.
KILLED = """
import sys; sys.path[:] = {path!r}
import asyncio
from holmes.serve import decoding, jobs
from holmes.serve.settings import Limits, ServeSettings
from holmes.serve.turns import Caller
jobs.TARGET = decoding.TARGET = "fake_children:start_sleeping"
async def main():
    started = jobs.Jobs(ServeSettings(manage=True, add_from=({folder!r},)))
    started.add({folder!r} + "/index", [{folder!r} + "/more"], [])
    decoders = decoding.Decoders(Limits())
    waiting = asyncio.create_task(decoders.plan({folder!r}, 0.0, Caller("somebody")))
    while not decoders.workers:
        await asyncio.sleep(0.01)
    print(started._jobs[0].child.pid, next(iter(decoders.workers)).child.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_end_of_the_server_ends_the_adding(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "TARGET", "fake_children:start_sleeping")
    settings = ServeSettings(manage=True, add_from=(folder / "more",), limits=PLENTY)
    with client_of(open_fake(folder / "index", monkeypatch), settings) as client:
        client.post("/api/videos", json={"paths": [str(folder / "more")]})
        (job,) = client.app.state.jobs._jobs  # type: ignore[attr-defined]
        assert job.child.alive
    assert not job.child.alive


def test_progress_goes_to_whoever_asked() -> None:
    told: list[tuple[str, int, int]] = []
    with (
        reported_to(lambda what, done, total: told.append((what, done, total))),
        progress_bar("counting", 5, done=2) as advance,
    ):
        advance(1)
        advance(2)
    assert told == [("counting", 2, 5), ("counting", 3, 5), ("counting", 5, 5)]


NOTHING: dict[str, list[dict[str, str]]] = {"left_out": [], "partial": [], "copies": []}


def test_what_was_left_out_is_remembered_until_it_is_in(tmp_path: Path) -> None:
    assert read_skipped(tmp_path) == NOTHING
    broken, cut = Failure(Path("/x/a.mp4"), "it is broken"), Failure(Path("/x/b.mp4"), "it was cut short")
    copy = Duplicate(Path("/x/c.mp4"), Path("/x/b.mp4"))
    record_skipped(tmp_path, [broken], [cut], {"/x/b.mp4"}, [copy])
    notes = read_skipped(tmp_path)
    assert notes["left_out"] == [{"name": "/x/a.mp4", "reason": "it is broken"}]
    assert notes["partial"] == [{"name": "/x/b.mp4", "reason": "it was cut short"}]
    assert notes["copies"] == [{"name": "/x/c.mp4", "reason": "the same as /x/b.mp4"}]
    record_skipped(tmp_path, [], [], {"/x/b.mp4"})  # other files were added
    assert read_skipped(tmp_path) == notes
    record_skipped(tmp_path, [], [], {"/x/a.mp4", "/x/c.mp4"})  # mended and added; the other was removed
    assert read_skipped(tmp_path) == NOTHING
    sound = {"name": "/c.mp4", "reason": "it is empty"}
    damaged = [1, {"name": 2, "reason": ""}, {"name": "/d.mp4"}, sound, {**sound, "more": 1}]
    (tmp_path / "left_out.json").write_text(json.dumps({"left_out": damaged, "partial": 3}))
    assert read_skipped(tmp_path) == {**NOTHING, "left_out": [sound]}


def test_files_that_are_gone_are_no_longer_left_out(tmp_path: Path) -> None:
    away = tmp_path / "disk" / "away.mp4"
    here, gone = tmp_path / "here.mp4", tmp_path / "gone.mp4"
    for file in (here, gone):
        file.touch()
    failures = [Failure(each, "it is broken") for each in (here, gone, away)]
    record_skipped(tmp_path, failures, [], set())
    gone.unlink()
    record_skipped(tmp_path, [], [], set(), [Duplicate(here, away)])
    notes = read_skipped(tmp_path)
    assert [note["name"] for note in notes["left_out"]] == [str(away)]  # with its folder: a disk that is away
    assert notes["copies"] == [{"name": str(here), "reason": f"the same as {away}"}]  # not in both lists


@pytest.mark.skipif(chromium() is None, reason="no chromium: the page is not tested")
def test_the_page_shows_progress_and_takes_videos_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServeSettings(manage=True, add_from=(folder / "more",), limits=PLENTY)
    bad, copy = Path("/x/<i>bad.mp4"), Duplicate(Path("/x/copy.mp4"), Path("/x/film.mp4"))
    record_skipped(folder / "index", [Failure(bad, "it is broken")], [], set(), [copy])
    with serving(open_fake(folder / "index", monkeypatch), settings) as address, launched() as browser:
        page = browser.new_page(base_url=address)
        page.goto("/library")
        page.get_by_role("button", name="Add videos").click()
        for path, problem in (
            ("/etc", "outside the folders"),
            ("/no/such/folder", "no such file or folder"),
        ):
            page.fill("#path", path)
            page.get_by_role("button", name="Add", exact=True).click()
            page.wait_for_selector(f".news.problem >> text={problem}")
        assert violations(page) == []
        page.fill("#path", "")
        page.locator("#path").press_sequentially(str(folder / "mo"), delay=2)
        until(page, f"document.querySelector('#path-list option')?.value === '{folder / 'more'}/'")
        page.fill("#path", str(folder / "more"))
        page.get_by_role("button", name="Add", exact=True).click()
        page.wait_for_selector("progress:not([hidden])")
        page.wait_for_selector(".news >> text=2 files gave 2 added, 0 already there, 0 left out.")
        page.keyboard.press("Escape")
        until(page, f"document.querySelectorAll('.grid .tile').length === {len(FILMS) + 2}")
        assert page.evaluate("document.activeElement.textContent") == "Add videos"
        page.get_by_text("1 file left out, 1 duplicate", exact=True).click()
        assert page.locator(".left[open] li").all_inner_texts() == [
            f"{bad}: it is broken",
            "/x/copy.mp4: the same as /x/film.mp4",
        ]
        page.evaluate("document.querySelectorAll('.left ul').forEach((l) => { l.style.maxHeight = '20px'; })")
        assert violations(page) == [], "also where the lists are long"
        page.on("dialog", lambda dialog: dialog.accept())
        tiles = page.locator(".grid .title").all_inner_texts()
        page.get_by_role("button", name="Remove balloon.mp4").press("Enter")
        until(page, f"document.querySelectorAll('.grid .tile').length === {len(FILMS) + 1}")
        following = tiles[tiles.index("balloon.mp4") + 1]
        until(page, f"document.activeElement.textContent.endsWith('{following}')")
    assert (folder / "index" / FEATURES).exists()
