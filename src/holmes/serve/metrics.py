"""Counts for operators, in the text format that Prometheus reads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


class Histogram:
    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        place = next((n for n, bound in enumerate(self.bounds) if value <= bound), len(self.bounds))
        self.counts[place] += 1
        self.sum += value

    def lines(self, name: str, labels: str = "") -> Iterable[str]:
        total, comma = 0, "," if labels else ""
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self.sum:.6f}"
        yield f"{name}_count{{{labels}}} {total}"


class Metrics:
    """Counted by route, never by what was asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._batches = Histogram(BATCHES)
        self.gauges: dict[str, float] = {}

    def answered(self, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[route, status] += 1
            self._seconds.setdefault(route, Histogram(SECONDS)).observe(seconds)

    def batched(self, sentences: int) -> None:
        with self._lock:
            self._batches.observe(sentences)

    def text(self) -> str:
        with self._lock:
            return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterable[str]:
        yield "# HELP holmes_requests_total Requests by route and status."
        yield "# TYPE holmes_requests_total counter"
        for (route, status), count in sorted(self._requests.items()):
            yield f'holmes_requests_total{{route="{route}",status="{status}"}} {count}'
        yield "# HELP holmes_request_seconds Time from a request to the end of its response."
        yield "# TYPE holmes_request_seconds histogram"
        for route, histogram in sorted(self._seconds.items()):
            yield from histogram.lines("holmes_request_seconds", f'route="{route}"')
        yield "# HELP holmes_batch_sentences Sentences that shared one scan."
        yield "# TYPE holmes_batch_sentences histogram"
        yield from self._batches.lines("holmes_batch_sentences")
        for name, value in sorted(self.gauges.items()):
            yield f"# TYPE holmes_{name} gauge"
            yield f"holmes_{name} {value:g}"
