"""A reply is late compared with similar calls, not by the clock alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from holmes.cluster.actors import Latencies
from holmes.cluster.calls import Call, call, decode_call, encode_calls
from holmes.cluster.shard import ProbeArrays, Shard


def probes(sentences: int) -> ProbeArrays:
    return np.zeros((sentences, 1, 4), np.float32), np.zeros((sentences, 1), np.float32)


def nearest(sentences: int) -> Call[Any]:
    return call(Shard.nearest, probes(sentences), 10, 100, None)


def test_a_reply_is_late_after_three_times_the_median() -> None:
    latencies = Latencies()
    assert latencies.late_after(nearest(1), 0.5) == 0.5, "nothing is known yet"
    latencies.record(nearest(1), [0.01, 0.02, 0.9])
    assert latencies.late_after(nearest(1), 0.5) == 0.5, "the least time, however quick replies are"
    latencies.record(nearest(64), [0.8, 1.0, 1.1, 9.0, 0.9])
    assert latencies.late_after(nearest(64), 0.5) == pytest.approx(3.0)
    assert latencies.late_after(nearest(100), 0.5) == pytest.approx(3.0), "about as many sentences"
    assert latencies.late_after(nearest(1), 0.5) == 0.5, "many sentences say nothing about one"
    found = call(Shard.found, probes(64), [])
    assert latencies.late_after(found, 0.5) == 0.5, "nor about another method"


def test_old_latencies_are_forgotten() -> None:
    latencies = Latencies()
    latencies.record(nearest(1), [5.0] * 40)
    latencies.record(nearest(1), [1.0] * 40)
    assert latencies.late_after(nearest(1), 0.5) == pytest.approx(3.0)


def test_calls_without_sentences_have_latencies_too() -> None:
    latencies = Latencies()
    latencies.record(call(Shard.durations), [2.0])
    latencies.record(call(Shard.lengths, ["a", "b"]), [4.0])
    assert latencies.late_after(call(Shard.durations), 0.5) == pytest.approx(6.0)
    assert latencies.late_after(call(Shard.lengths, ["c", "d"]), 0.5) == pytest.approx(12.0)


@pytest.mark.parametrize("shared", [True, False])
def test_calls_arrive_as_they_were_made(shared: bool) -> None:
    """A first argument that all shards are sent is encoded once; others travel with each call."""
    one = probes(3)
    calls = {
        name: call(Shard.nearest, one if shared else probes(3), top, 5, None) for name, top in TOPS.items()
    }
    common, own = encode_calls(calls, {"a": "digest a", "b": "digest b"})
    assert (len(common) > one[0].nbytes) == shared
    for name, top in TOPS.items():
        digest, arrived = decode_call(own[name], common)
        assert digest == f"digest {name}" and arrived.method is Shard.nearest
        assert all(np.array_equal(a, b) for a, b in zip(arrived.arguments[0], one, strict=True))
        assert arrived.arguments[1:] == (top, 5, None)
        assert (len(own[name]) < one[0].nbytes + 200) or not shared


TOPS = {"a": 1, "b": 2}


def test_calls_without_arguments_arrive_too() -> None:
    common, own = encode_calls({"a": call(Shard.names)}, {"a": "d"})
    assert decode_call(own["a"], common) == ("d", Call(Shard.names, ()))
    assert encode_calls({}, {})[1] == {}
