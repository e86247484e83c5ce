"""Counters in the text format of Prometheus."""

from __future__ import annotations

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST
prometheus_client.disable_created_metrics()


class Metrics:
    """Counted by route, never by what was asked."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "holmes_requests", "Requests by route and status.", ("route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "holmes_request_seconds",
            "Time from a request to the end of its response.",
            ("route",),
            buckets=SECONDS,
            registry=registry,
        )
        self._batches = Histogram(
            "holmes_batch_sentences", "Sentences that shared one scan.", buckets=BATCHES, registry=registry
        )
        self.videos = Gauge("holmes_index_videos", "Videos of the index.", registry=registry)
        self.generation = Gauge(
            "holmes_index_generation", "Number of the index's snapshot.", registry=registry
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def batched(self, sentences: int) -> None:
        self._batches.observe(sentences)

    def text(self) -> bytes:
        return prometheus_client.generate_latest(self._registry)
