"""TF-PRVR: its wavelet against the definition, its cuts, and its scores by hand."""

from __future__ import annotations

import numpy as np
import pytest

from holmes.encoders.tf_prvr import (
    WAVELETS,
    best_frame_scores,
    detail_levels,
    filters,
    moment_scores,
    moments_of,
    peaks,
    segments_of,
)


@pytest.mark.parametrize("wavelet", WAVELETS)
def test_filters_are_orthogonal(wavelet):
    """A wavelet's filters and their even shifts are orthonormal; the low pass keeps a constant."""
    low, high, *_ = filters(tuple(WAVELETS[wavelet]))
    assert low.sum() == pytest.approx(np.sqrt(2)) and high.sum() == pytest.approx(0, abs=1e-12)
    for shift in range(0, len(low), 2):
        assert low[shift:] @ low[: len(low) - shift] == pytest.approx(float(shift == 0), abs=1e-11)
        assert low[shift:] @ high[: len(low) - shift] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("count, levels", [(6, 0), (13, 0), (14, 1), (28, 2), (300, 5)])
def test_levels_are_as_many_as_the_filter_fits_into(count, levels):
    signal = np.random.default_rng(0).normal(size=count)
    found = detail_levels(signal, WAVELETS["db4"])
    assert len(found) == levels and all(len(detail) == count for detail in found)


def test_details_of_all_levels_leave_a_smooth_rest():
    """Haar on a power of two: what is left after all levels is the mean."""
    signal = np.random.default_rng(0).normal(size=64)
    rest = signal - sum(detail_levels(signal, WAVELETS["haar"]))
    np.testing.assert_allclose(rest, np.full(64, signal.mean()), atol=1e-12)


def test_peaks_are_strict_maxima_in_the_middle_of_plateaus():
    values = np.array([8.0, 0, 3, 0, 7, 7, 7, 0, 1, 0, 0, 0, 0, 0])
    assert peaks(values).tolist() == [5], "3 is below mean + deviation, an end has one side only"
    assert peaks(np.zeros(5)).tolist() == []
    assert peaks(np.array([0, 1, 0, 0, 0, 0, 0, 0.0]) * 1e-9).tolist() == [], "rounding"


def test_a_cut_between_two_scenes_is_found():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(2, 16))
    scenes = np.repeat([first, second], 32, axis=0)
    frames = scenes + 0.01 * rng.normal(size=scenes.shape)
    spans = segments_of(frames).spans_S2
    assert any(abs(int(edge) - 32) <= 1 for edge in spans[:, 0])
    scores = moment_scores(np.stack([first, second]), [moments_of(frames), moments_of(frames[:32])])
    assert scores[1, 0] > scores[1, 1] + 0.2, "the second scene is in the first video only"


@pytest.mark.parametrize("count", [1, 2, 3, 15])
def test_short_videos_are_one_moment(count):
    frames = np.random.default_rng(0).normal(size=(count, 8))
    moments = moments_of(frames)
    assert moments.spans_P2.tolist() == [[0, count]]
    mean = (frames / np.linalg.norm(frames, axis=1, keepdims=True)).mean(0)
    np.testing.assert_allclose(moments.features_PD[0], mean / np.linalg.norm(mean), rtol=1e-9)


def test_the_best_frame_by_loops():
    rng = np.random.default_rng(0)
    query, videos = rng.normal(size=(3, 5)), [rng.normal(size=(n, 5)) for n in (1, 4, 2)]
    for q in range(3):
        for v, video in enumerate(videos):
            best = max(query[q] @ row / np.linalg.norm(query[q]) / np.linalg.norm(row) for row in video)
            assert best_frame_scores(query, videos)[q, v] == pytest.approx(best, rel=1e-6)
