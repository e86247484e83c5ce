"""An index on another machine, searched as if it were open here: `holmes.connect(URL).search(sentence)`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

from holmes.errors import HolmesError
from holmes.evidence.diagnosis import Diagnosis
from holmes.index.answer.answers import Answer, Hit
from holmes.index.storage.description import IndexDescription
from holmes.moments import Moment
from holmes.results import record_of

AT_ONCE = 64  # sentences in one request
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
class RemoteIndex:
    """A served index; every call is a request."""

    url: str
    token: str | None = None
    timeout: float = 60.0  # seconds

    def __len__(self) -> int:
        return int(self._get("/api/index")["videos"])

    @property
    def videos(self) -> list[str]:
        names: list[str] = []
        while True:
            page = self._get("/api/videos", offset=len(names), limit=500)
            names += [video["name"] for video in page["videos"]]
            if len(names) >= page["total"] or not page["videos"]:
                return names

    def search(
        self,
        sentence: str,
        top: int = 10,
        *,
        filter: str | None = None,
        abstain_below: float | None = None,
        min_probability: float | None = None,
    ) -> Answer:
        """As the same method of an open index."""
        return self.search_many(
            [sentence], top, filter=filter, abstain_below=abstain_below, min_probability=min_probability
        )[0]

    def search_many(
        self,
        sentences: Sequence[str],
        top: int = 10,
        *,
        filter: str | None = None,
        abstain_below: float | None = None,
        min_probability: float | None = None,
    ) -> list[Answer]:
        if isinstance(sentences, str):
            raise HolmesError("search_many takes a list of sentences; use search for one.")
        answers: list[Answer] = []
        for start in range(0, len(sentences), AT_ONCE):
            some = list(sentences[start : start + AT_ONCE])
            order = {
                "sentences": some,
                "top": top,
                "filter": filter,
                "abstain_below": abstain_below,
                "min_probability": min_probability,
            }
            answers += [_answer(plain) for plain in self._request("/api/search", order)["answers"]]
        return answers

    def describe(self) -> IndexDescription:
        """What the index is and what made it."""
        told = self._get("/api/index")
        return record_of(IndexDescription, told)

    def _get(self, path: str, **parameters: Any) -> Any:
        return self._request(f"{path}?{urlencode(parameters)}" if parameters else path)

    def _request(self, path: str, body: Any = None) -> Any:
        headers = {"accept": "application/json", "content-type": "application/json"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(self.url + path, data, headers), timeout=self.timeout) as response:
                return json.loads(response.read(LARGEST))
        except HTTPError as error:
            raise HolmesError(f"{self.url}: {_reason(error)}") from None
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise HolmesError(f"{self.url} does not answer ({reason}); is 'holmes serve' running?") from None
        except ValueError:
            raise HolmesError(f"{self.url} does not answer as Holmes does; check the address.") from None


def connect(url: str, *, token: str | None = None, timeout: float = 60.0) -> RemoteIndex:
    """The index that `holmes serve` offers at `url`, such as http://127.0.0.1:8000."""
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
        apart=tuple(told["apart"]),
        rough=told["rough"],
        probabilities=tuple(hit.probability for hit in hits if hit.probability is not None),
        beliefs=tuple(hit.belief for hit in hits),
        quantities={name: value for name, value in told.items() if name not in WORDS},
    )
    return Answer(plain["query"], diagnosis, hits, told["abstained"], tuple(plain.get("missing", ())))


def _hit(plain: dict[str, Any]) -> Hit:
    moments = tuple(Moment(each["start"], each["end"], each["score"]) for each in plain["moments"])
    hit = RemoteHit(plain["video"], plain["score"], plain["belief"], plain["probability"], moments)
    object.__setattr__(hit, "_gone", bool(plain["gone"]))
    return hit


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read(LARGEST))["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"the server answered {error.code}."
