"""An index on another machine, searched as if it were open here: `holmes.connect(URL).search(sentence)`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

import numpy as np

from holmes.errors import HolmesError
from holmes.evidence.judging import Diagnosis
from holmes.index.answer.answers import Answer, Hit, Timeline
from holmes.index.answer.base import Paths, SearchIndex, paths_of
from holmes.index.answer.request import SearchRequest, check_sentence
from holmes.index.ingest.builder import BuildSummary
from holmes.index.storage.store import IndexDescription
from holmes.media.extraction import Failure
from holmes.moments import Moment
from holmes.results import record_of

AT_ONCE = 64  # sentences in one request
LOOK_AGAIN = 0.5  # seconds between two looks at what the server is adding
LARGEST = 256 * 2**20  # bytes of a response
WORDS = (
    "kind",
    "words",
    "explanation",
    "advice",
    "probability",
    "here",
    "group",
    "apart",
    "rough",
    "abstained",
)


class RemoteHit(Hit):
    """A hit whose file is on the server's machine."""

    _gone = False

    @property
    def gone(self) -> bool:
        return self._gone


@dataclass(frozen=True)
class RemoteIndex(SearchIndex):
    """A served index; every call is a request."""

    url: str
    token: str | None = None
    timeout: float = 60.0  # seconds

    def __len__(self) -> int:
        return int(self._get("/api/index")["videos"])

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
        if request.filter is not None and not isinstance(request.filter, str):
            raise HolmesError("a served index takes one pattern as a filter, such as '*/2024/*'.")
        answers: list[Answer] = []
        for start in range(0, len(request.sentences), AT_ONCE):
            order = {
                "sentences": list(request.sentences[start : start + AT_ONCE]),
                "top": int(request.top),
                "filter": request.filter,
                "abstain_below": request.abstain_below,
                "not_here_below": request.not_here_below,
                "expect_missing": request.expect_missing,
            }
            answers += [_answer(plain) for plain in self._request("/api/search", order)["answers"]]
        return answers

    def _look_alikes(self, video: str, time: float, top: int) -> tuple[Hit, ...]:
        found = self._get(f"/api/videos/{self._id(video)}/like", t=time, top=top)
        return tuple(_hit(hit) for hit in found["hits"])

    def timelines(self, sentence: str, videos: Sequence[str]) -> list[Timeline]:
        """As every index, but in at most 160 equal steps."""
        check_sentence(sentence)
        return [_timeline(self._get(f"/api/videos/{self._id(name)}/timeline", q=sentence)) for name in videos]

    def add(
        self, videos: Paths, *, fast: bool = False, workers: int | None = None, progress: bool = False
    ) -> BuildSummary:
        """Add videos of the server's machine, by their full paths; the server must allow it (`--manage`)."""
        if fast or workers is not None:
            raise HolmesError(f"{self.url} decides itself how to decode; leave out fast and workers.")
        job = self._request("/api/videos", {"paths": [str(path) for path in paths_of(videos)]})
        while job["state"] == "running":
            sleep(LOOK_AGAIN)
            job = self._get("/api/job")
        if job["state"] != "done":
            raise HolmesError(f"{self.url}: {job['message']}")
        failures = tuple(Failure(Path(each["name"]), each["reason"]) for each in job["failures"])
        return BuildSummary(int(job.get("added", 0)), int(job.get("unchanged", 0)), failures)

    def remove(self, videos: Paths) -> tuple[str, ...]:
        """Remove videos by their names; the server must allow it (`--manage`)."""
        names = [str(name) for name in paths_of(videos)]
        ids = [self._id(name) for name in names]
        for id in ids:
            self._request(f"/api/videos/{id}", method="DELETE")
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
        data = None if body is None else json.dumps(body).encode()
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
            raise HolmesError(f"{self.url}: {_reason(error)}") from None
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise HolmesError(f"{self.url} does not answer ({reason}); is 'holmes serve' running?") from None
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


def _answer(plain: dict[str, Any]) -> Answer:
    hits = tuple(_hit(hit) for hit in plain["hits"])
    told = plain["diagnosis"]
    diagnosis = Diagnosis(
        kind=told["kind"],
        words=told["words"],
        explanation=told["explanation"],
        advice=told["advice"],
        probability=told["probability"],
        here=told["here"],
        group=len(told["group"]),
        probabilities=tuple(hit.probability for hit in hits if hit.probability is not None),
        beliefs=tuple(hit.belief for hit in hits),
        quantities={name: value for name, value in told.items() if name not in WORDS},
    )
    return Answer(plain["query"], diagnosis, hits, told["abstained"], tuple(plain.get("missing", ())))


def _hit(plain: dict[str, Any]) -> Hit:
    moments = tuple(Moment(each["start"], each["end"], each["score"]) for each in plain["moments"])
    hit = RemoteHit(
        plain["video"], plain["score"], plain["belief"], plain["probability"], moments, plain.get("fit")
    )
    object.__setattr__(hit, "_gone", bool(plain["gone"]))
    return hit


def _timeline(plain: dict[str, Any]) -> Timeline:
    similarity_F = np.asarray(plain["similarity"], np.float32)
    edges = np.linspace(0, plain["duration"], len(similarity_F) + 1)
    return Timeline(similarity_F, np.stack([edges[:-1], edges[1:]], 1))


def _seconds(error: HTTPError) -> float | None:
    """How long the server asks to wait; None if it does not."""
    given = error.headers.get("retry-after", "")
    return float(given) if error.code in (429, 503) and given.isdecimal() else None


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read(LARGEST))["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"the server answered {error.code}."
