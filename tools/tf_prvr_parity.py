"""Parity of TF-PRVR, which has no weights: rows of `parity.py` for its golden file."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
from golden_file import Row, relative_error

from holmes.encoders.tf_prvr import best_frame_scores, moment_scores, moments_of, segment_graph, segments_of

TOLERANCE = 1e-5


def tf_prvr_rows(arrays: np.lib.npyio.NpzFile) -> Iterator[Row]:
    """Segments, graph and moments of every video, and all scores."""
    count = sum(key.startswith("video/") for key in arrays.files)
    videos = [arrays[f"video/{i}"] for i in range(count)]
    query_QD = arrays["query"]
    settings = json.loads(str(arrays["config"]))
    wavelet, beta = settings["wavelet"], settings["beta"]
    cut = [segments_of(video, wavelet) for video in videos]
    moments = [moments_of(video, wavelet, beta) for video in videos]

    def worst(quantity: str, key: str, ours: list[np.ndarray]) -> Row:
        errors = [relative_error(each, arrays[key.format(i)]) for i, each in enumerate(ours)]
        return Row(quantity, max(errors), "", TOLERANCE)

    yield worst("segments: spans", "nodes/{}/spans", [each.spans_S2 for each in cut])
    yield worst("segments: levels", "nodes/{}/level_offsets", [each.level_offsets for each in cut])
    yield worst("segments: vectors", "nodes/{}/features", [each.features_SD for each in cut])
    yield worst("segments: graph", "nodes/{}/graph", [segment_graph(each) for each in cut])
    yield worst("moments: spans", "moments/{}/spans", [each.spans_P2 for each in moments])
    yield worst("moments: vectors", "moments/{}/features", [each.features_PD for each in moments])
    haar = [segments_of(video, "haar") for video in videos]
    yield worst("Haar segments: spans", "nodes_haar/{}/spans", [each.spans_S2 for each in haar])
    yield worst("Haar segments: levels", "nodes_haar/{}/level_offsets", [each.level_offsets for each in haar])
    scores = {
        "scores": moment_scores(query_QD, moments),
        "scores_beta0": moment_scores(query_QD, [moments_of(video, wavelet, 0.0) for video in videos]),
        "scores_haar": moment_scores(query_QD, [moments_of(video, "haar", beta) for video in videos]),
        "best_frame": best_frame_scores(query_QD, videos),
    }
    for name, ours in scores.items():
        yield Row(f"scores: {name}", relative_error(ours, arrays[f"out/{name}"]), "", TOLERANCE)
