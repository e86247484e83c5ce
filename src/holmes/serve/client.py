"""A client for an index on another machine: `holmes.connect(URL).search(sentence)`."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

from holmes.base.files import open_file, sha256_file
from holmes.base.progress import progress_bar
from holmes.errors import HolmesError
from holmes.heard.passages import Heard
from holmes.index.answer.answers import Answer, Hit, Timeline
from holmes.index.answer.base import Captions, Paths, SearchIndex, paths_of
from holmes.index.answer.calibration import CalibrationSummary, captions_of
from holmes.index.answer.composed import ComposedQuery
from holmes.index.answer.request import SearchRequest, check_sentence
from holmes.index.ingest.builder import BuildSummary
from holmes.index.ingest.file_identity import Duplicate
from holmes.index.ingest.hearing import HearSummary
from holmes.index.ingest.sync import SyncSummary
from holmes.index.storage.store import IndexDescription, matching
from holmes.media.extraction import Failure
from holmes.media.find import find_videos
from holmes.media.pictures import thumbnail
from holmes.results import record_of
from holmes.serve.client_records import answer_of, failures_of, hit_of, passage_of, summary_of, timeline_of

AT_ONCE = 64  # sentences in one request
SENT_SIDE, SENT_BYTES = 384, 40_000  # pixels and bytes of a picture that is sent
PIECE, LEAST_PIECE = 4 << 20, 1 << 16  # bytes of a file sent in one request, at first and over a slow line
POLL_SECONDS = 0.5  # between two requests for what the server is adding
LARGEST = 256 * 2**20  # bytes of a response


class UnreachableError(HolmesError):
    """The server does not answer, or the connection was lost."""


class RefusedError(HolmesError):
    """The server answered that it will not."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class RemoteIndex(SearchIndex):
    """A served index; every call is a request."""

    url: str
    token: str | None = None
    timeout: float = 60.0  # seconds

    def __len__(self) -> int:
        return int(self._get("/api/index")["videos"])

    @property
    def libraries(self) -> dict[str, RemoteIndex]:
        """The libraries of a server that has several, by their names; empty if it has one index."""
        base = self._base
        listed = self._get("/api/libraries")["libraries"]
        return {each["name"]: replace(self, url=f"{base}/{quote(each['name'])}") for each in listed}

    @property
    def _base(self) -> str:
        """The address of the server, if this is the one of a library."""
        library = self._get("/api/index").get("library")
        return self.url.removesuffix(f"/{quote(library)}") if library else self.url

    def search_libraries(self, sentence: str, top: int = 10) -> dict[str | None, Answer]:
        """One search over all libraries of the server.

        Libraries with the same model give one answer, under `None`, with one distribution over all videos.
        Otherwise each library gives its own: probabilities of different models must not be compared.
        """
        check_sentence(sentence)
        found = self._get("/api/libraries/search", q=sentence, top=top)["answers"]
        return {each["library"]: answer_of(each["answer"]) for each in found if each["answer"] is not None}

    @property
    def videos(self) -> list[str]:
        return list(self.durations)

    @property
    def durations(self) -> dict[str, float]:
        return {video["name"]: float(video["duration"]) for video in self._listed()}

    def duration(self, video: str) -> float:
        return float(self._entry(video)["duration"])

    def _id(self, video: str) -> str:
        return str(self._entry(video)["id"])

    def _entry(self, video: str) -> dict[str, Any]:
        for entry in self._listed(q=video):
            if entry["name"] == video:
                return entry
        raise self._unknown(video)

    def _listed(self, **wanted: str) -> Iterator[dict[str, Any]]:
        """What the server knows of its videos, page by page."""
        seen, total = 0, 1
        while seen < total:
            page = self._get("/api/videos", offset=seen, limit=500, **wanted)
            yield from page["videos"]
            seen, total = seen + len(page["videos"]), page["total"] if page["videos"] else 0

    def _answer(self, request: SearchRequest) -> list[Answer]:
        pattern = request.filter if isinstance(request.filter, str) else None
        names = None if request.filter is None or pattern is not None else sorted(request.filter)
        answers: list[Answer] = []
        for start in range(0, len(request.sentences), AT_ONCE):
            order = {
                "sentences": list(request.sentences[start : start + AT_ONCE]),
                "top": int(request.top),
                "filter": pattern,
                "names": names,
                "abstain_below": request.abstain_below,
                "not_here_below": request.not_here_below,
                "expect_missing": request.expect_missing,
            }
            answers += [answer_of(plain) for plain in self._request("/api/search", order)["answers"]]
        return answers

    def _compose(self, query: ComposedQuery, top: int, filter: str | Collection[str] | None) -> Answer:
        order: dict[str, Any] = {"sentence": query.sentence, "then": query.then, "top": top}
        if filter is not None:
            order |= {"filter": filter} if isinstance(filter, str) else {"names": sorted(filter)}
        order["leave_out"] = list(query.leave_out)
        if query.pictures:
            small = thumbnail(query.pictures[0], SENT_SIDE, SENT_SIDE, limit=SENT_BYTES)
            order["image"] = b64encode(small).decode()
        if query.clip is not None:
            clip = query.clip
            order["like"] = {"video": clip.video, "start": clip.start, "end": clip.end}
        return answer_of(self._request("/api/search/by", order))

    def _look_alikes(self, video: str, time: float, top: int) -> tuple[Hit, ...]:
        found = self._get(f"/api/videos/{self._id(video)}/like", t=time, top=top)
        return tuple(hit_of(hit) for hit in found["hits"])

    def timelines(self, sentence: str, videos: Sequence[str]) -> list[Timeline]:
        """As every index, but in at most 160 equal steps."""
        check_sentence(sentence)
        return [self._timeline(name, q=sentence) for name in videos]

    def transcript(self, video: str) -> Heard | None:
        plain = self._get(f"/api/videos/{self._id(video)}/transcript")
        if not plain["heard"]:
            return None
        return Heard(tuple(map(passage_of, plain["passages"])), dict(plain["sources"]), tuple(plain["notes"]))

    def timelines_like(self, video: str, time: float, videos: Sequence[str]) -> list[Timeline]:
        like = self._id(video)
        return [self._timeline(name, like=like, t=time) for name in videos]

    def _timeline(self, video: str, **query: Any) -> Timeline:
        return timeline_of(self._get(f"/api/videos/{self._id(video)}/timeline", **query))

    def encode(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        SearchRequest(sentences).check()
        parts = [list(sentences[start : start + AT_ONCE]) for start in range(0, len(sentences), AT_ONCE)]
        found = [self._request("/api/encode", {"sentences": part})["vectors"] for part in parts]
        return np.asarray([vector for part in found for vector in part], np.float32)

    def readable(self, sentence: str) -> str:
        check_sentence(sentence)
        return str(self._request("/api/encode", {"sentences": [sentence]})["read"][0])

    def add(
        self, videos: Paths, *, fast: bool = False, workers: int | None = None, progress: bool = False
    ) -> BuildSummary:
        """Add videos of the server's machine, by their full paths; the server must allow it (`--manage`)."""
        return BuildSummary(**summary_of(self._changed("/api/videos", videos, fast, workers, progress)))

    def sync(
        self, folders: Paths, *, fast: bool = False, workers: int | None = None, progress: bool = False
    ) -> SyncSummary:
        """Make the index match folders of the server's machine; the server must allow it (`--manage`)."""
        job = self._changed("/api/sync", folders, fast, workers, progress)
        return SyncSummary(**summary_of(job), removed=tuple(job["removed"]), away=tuple(job["away"]))

    def calibrate(self, rows: Captions) -> CalibrationSummary:
        """As every index; the server must allow it (`--manage`)."""
        order = [{"sentence": sentence, "video": video} for sentence, video in captions_of(rows)]
        return record_of(CalibrationSummary, self._request("/api/calibrate", {"rows": order}))

    def hear(self, *, workers: int | None = None, progress: bool = False) -> HearSummary:
        """As every index; the server must allow it (`--manage`)."""
        job = self._done("/api/hear", {"workers": workers}, "hearing videos", progress)
        failures, notes = failures_of(job["failures"]), failures_of(job["notes"])
        return HearSummary(job["heard"], job["unchanged"], job["passages"], failures, notes)

    def _changed(
        self, path: str, videos: Paths, fast: bool, workers: int | None, progress: bool
    ) -> dict[str, Any]:
        order = {"paths": [str(path) for path in paths_of(videos)], "fast": fast, "workers": workers}
        return self._done(path, order, "adding videos", progress)

    def _done(self, path: str, order: dict[str, Any], what: str, progress: bool) -> dict[str, Any]:
        """What became of a job, once it is done."""
        job: dict[str, Any] = self._request(path, order)
        with progress_bar(what, 100, progress=progress) as advance:
            shown = 0
            while job["state"] == "running":
                sleep(POLL_SECONDS)
                job = self._get("/api/job")
                percent = 100 * job["done"] // job["total"] if job["total"] else 0
                advance(max(0, percent - shown))
                shown = max(shown, percent)
        if job["state"] != "done":
            raise HolmesError(f"{self.url}: {job['message']}")
        return job

    def upload(self, videos: Paths, *, progress: bool = False) -> BuildSummary:
        """Send videos of this machine to the server, which adds them; it must allow it (`--uploads`).

        A lost connection is continued; after a crash, call it again. Videos that the server has are not sent.

        Args:
            videos: A file, a folder, or several.
            progress: Draw a progress bar.

        Example:
            >>> summary = remote.upload("holiday/")
            >>> summary.added + summary.unchanged + len(summary.duplicates) + len(summary.failures)
            12
        """
        names = {
            file: str(file.relative_to(folder.parent if folder.is_dir() else file.parent))
            for folder in (Path(path).absolute() for path in paths_of(videos))
            for file in find_videos([folder])
        }
        sent: dict[Path, dict[str, Any]] = {}
        failures: list[Failure] = []
        total = sum(file.stat().st_size for file in names if file.exists()) >> 20
        with progress_bar("sending MiB", total, progress=progress) as advance:
            for file, name in names.items():
                try:
                    sent[file] = self._send(file, name)
                    advance(file.stat().st_size >> 20)
                except (RefusedError, OSError) as error:
                    if isinstance(error, RefusedError) and error.status in (401, 403, 507):
                        raise
                    failures.append(Failure(file, str(error)))
        self._wait_for(sent)
        of_state: dict[str, list[Path]] = {"added": [], "there": [], "same": [], "skipped": []}
        for file, upload in sent.items():
            of_state[upload["state"]].append(file)
        left_out = [Failure(file, str(sent[file]["reason"])) for file in of_state["skipped"]]
        same = [Duplicate(file, Path(str(sent[file]["same_as"]))) for file in of_state["same"]]
        counts = len(of_state["added"]), len(of_state["there"])
        return BuildSummary(*counts, (*failures, *left_out), duplicates=tuple(same))

    def _wait_for(self, sent: dict[Path, dict[str, Any]]) -> None:
        """Ask what became of files that were sent, until the server has added all of them."""
        forgotten = {"state": "skipped", "reason": "the server forgot it"}
        while waiting := [file for file, upload in sent.items() if upload["state"] in ("waiting", "adding")]:
            sleep(POLL_SECONDS)
            known = {upload["id"]: upload for upload in self._get("/api/uploads")["uploads"]}
            for file in waiting:
                sent[file] = known.get(sent[file]["id"], forgotten)

    def _send(self, file: Path, name: str) -> dict[str, Any]:
        """Announce a file and send its pieces; what the server knows of it then."""
        order = {"name": name, "size": file.stat().st_size, "sha256": sha256_file(file)}
        piece, end = PIECE, monotonic() + self.timeout
        upload: dict[str, Any] | None = None
        with open_file(file) as content:
            while upload is None or upload["state"] == "sending":
                try:
                    if upload is None:
                        upload = self._request("/api/uploads", order)
                        continue
                    content.seek(upload["offset"])
                    path = f"/api/uploads/{upload['id']}?offset={upload['offset']}"
                    data = content.read(min(piece, order["size"] - upload["offset"]))
                    if not data:
                        raise HolmesError(f"{file} became shorter while it was sent; send it again.")
                    upload = self._request(path, data, "PATCH")
                    end = monotonic() + self.timeout
                except (UnreachableError, RefusedError) as error:
                    resumed = isinstance(error, UnreachableError) or error.status in (404, 412)
                    if not resumed or monotonic() > end:
                        raise
                    upload, piece = None, max(LEAST_PIECE, piece // 2)  # ask where to continue
                    sleep(POLL_SECONDS)
        return upload

    def remove(self, videos: Paths) -> tuple[str, ...]:
        """As every index; the server must allow it (`--manage`)."""
        ids = {video["name"]: video["id"] for video in self._listed()}
        names = {name for each in paths_of(videos) for name in matching(ids, str(each), self.url)}
        for name in names:
            self._request(f"/api/videos/{ids[name]}", method="DELETE")
        return tuple(sorted(names))

    def describe(self) -> IndexDescription:
        told = self._get("/api/index")
        return record_of(IndexDescription, told)

    @property
    def _where(self) -> str:
        return self.url

    def _get(self, path: str, **parameters: Any) -> Any:
        return self._request(f"{path}?{urlencode(parameters)}" if parameters else path)

    def _request(self, path: str, body: Any = None, method: str | None = None) -> Any:
        headers = {"accept": "application/json", "content-type": "application/json"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        if isinstance(body, bytes):
            headers["content-type"] = "application/octet-stream"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = Request(self.url + path, data, headers, method=method)
        end = monotonic() + self.timeout
        try:
            while True:
                try:
                    with urlopen(request, timeout=self.timeout) as response:
                        return json.loads(response.read(LARGEST))
                except HTTPError as error:
                    wait = _seconds(error)
                    if wait is None or monotonic() + wait > end:
                        raise
                    error.close()
                    sleep(wait)
        except HTTPError as error:
            raise RefusedError(f"{self.url}: {_reason(error)}", error.code) from None
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            message = f"{self.url} does not answer ({reason}); is 'holmes serve' running?"
            raise UnreachableError(message) from None
        except ValueError:
            raise HolmesError(f"{self.url} does not answer as Holmes does; check the address.") from None


def connect(url: str, *, token: str | None = None, timeout: float = 60.0) -> RemoteIndex:
    """The index that `holmes serve` offers at `url`; it is searched like an open index.

    Args:
        url: The address of the server.
        token: The token that the server asks for, if it asks for one.
        timeout: Seconds to wait for each reply.

    Example:
        >>> remote = holmes.connect("http://127.0.0.1:8000")
        >>> len(remote), len(remote.search("a dog runs"))
        (3, 3)
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise HolmesError(f"'{url}' is not the address of a server; write it as http://127.0.0.1:8000.")
    index = RemoteIndex(f"{parts.scheme}://{parts.netloc}{quote(parts.path.rstrip('/'))}", token, timeout)
    health = index._get("/api/health")
    if not isinstance(health, dict) or health.get("status") != "ok":
        raise HolmesError(f"{url} does not answer as Holmes does; check the address.")
    return index


def _seconds(error: HTTPError) -> float | None:
    """How long the server asks to wait; None if it does not."""
    given = error.headers.get("retry-after", "")
    return float(given) if error.code in (429, 503) and given.isdecimal() else None


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read(LARGEST))["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"the server answered {error.code}."
