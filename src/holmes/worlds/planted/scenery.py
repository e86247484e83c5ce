"""The frames of the planted world: noisy nonlinear functions of its events.

A frame's latent state is a sum, which a fixed two-layer map turns into a feature:

- what its event shows; each attribute is sometimes hidden, and the action moves from a beginning to an end
- the background of the place, shared by all videos there
- the video's own style
- a drift over time, and noise

Some frames are distractors: they show something else, of a kind that all videos share.

V videos, E events, N frames, A attributes, Z latent width, D feature width
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holmes.worlds.planted.vocabulary import ATTRIBUTES, FAMILY
from holmes.worlds.planted.world import WorldPlan

Floats = NDArray[np.float32]

LATENT = 128
HIDDEN = 512
MAP_SEED = 1887  # the same map for every world
FAMILY_PART, VALUE_PART = 0.5, 0.85
DISTRACTORS = 12  # kinds of frames that show nothing of the story
GAIN = 1.2  # how strongly the map bends


@dataclass(frozen=True)
class Disturbance:
    """What hides the event, at difficulty 1; each grows in proportion to the difficulty."""

    style: float = 0.55
    drift: float = 0.4
    noise: float = 0.85
    out_of_sight: float = 0.25  # probability that a frame does not show an attribute
    distractors: float = 0.1  # probability that a frame shows something else
    blur: float = 0.35  # noise on the features

    def times(self, difficulty: float) -> Disturbance:
        return Disturbance(
            style=self.style * difficulty,
            drift=self.drift * difficulty,
            noise=self.noise * difficulty,
            out_of_sight=min(0.9, self.out_of_sight * difficulty),
            distractors=min(0.9, self.distractors * difficulty),
            blur=self.blur * difficulty,
        )


class FeatureMap:
    """The fixed maps: a vector for the appearance of every value, and the nonlinear view of a state."""

    def __init__(self, width: int) -> None:
        rng = np.random.default_rng([MAP_SEED, width])
        self.appearance_A = [
            self._appearances(rng, len(attribute), attribute.visible) for attribute in ATTRIBUTES
        ]
        self.ending_action = self._appearances(rng, len(ATTRIBUTES[1]), ATTRIBUTES[1].visible)
        self.background = unit(rng, len(ATTRIBUTES[3]))
        self.distractor = 1.5 * unit(rng, DISTRACTORS)
        self.into = (rng.standard_normal((LATENT, HIDDEN)) * GAIN).astype(np.float32)
        self.bias = (0.3 * rng.standard_normal(HIDDEN)).astype(np.float32)
        self.out = (rng.standard_normal((HIDDEN, width)) / np.sqrt(HIDDEN)).astype(np.float32)

    @staticmethod
    def _appearances(rng: np.random.Generator, values: int, visible: float) -> Floats:
        family = np.repeat(unit(rng, values // FAMILY), FAMILY, axis=0)
        return np.asarray(visible * (FAMILY_PART * family + VALUE_PART * unit(rng, values)), np.float32)

    def view(self, state_NZ: Floats) -> Floats:
        feature_ND: Floats = np.tanh(state_NZ @ self.into + self.bias) @ self.out
        return feature_ND


def unit(rng: np.random.Generator, count: int) -> Floats:
    vectors = rng.standard_normal((count, LATENT))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def gaussian(rng: np.random.Generator, count: int) -> Floats:
    """Rows of length about 1."""
    return rng.standard_normal((count, LATENT), np.float32) / np.float32(np.sqrt(LATENT))


def film(
    plan: WorldPlan,
    first: int,
    last: int,
    feature_map: FeatureMap,
    disturbance: Disturbance,
    rng: np.random.Generator,
) -> Floats:
    """The feature rows of videos first … last - 1, one after the other."""
    counts_V = plan.frame_counts_V[first:last]
    video_N = np.repeat(np.arange(len(counts_V)), counts_V)
    start_V = np.cumsum(counts_V) - counts_V
    frame_N = np.arange(len(video_N)) - start_V[video_N]

    state_NZ = shown_events(plan, first, last, start_V, len(video_N), feature_map, disturbance, rng)
    state_NZ += disturbance.style * gaussian(rng, len(counts_V))[video_N]
    state_NZ += drift(counts_V, video_N, frame_N, disturbance.drift, rng)
    state_NZ += disturbance.noise * gaussian(rng, len(video_N))
    elsewhere_N = rng.random(len(video_N)) < disturbance.distractors
    state_NZ[elsewhere_N] = feature_map.distractor[rng.integers(0, DISTRACTORS, elsewhere_N.sum())]
    state_NZ[elsewhere_N] += disturbance.noise * gaussian(rng, int(elsewhere_N.sum()))
    rows_ND = feature_map.view(state_NZ)
    scale = float(np.sqrt((rows_ND**2).mean()))
    rows_ND += disturbance.blur * scale * rng.standard_normal(rows_ND.shape, np.float32)
    return rows_ND


def shown_events(
    plan: WorldPlan, first: int, last: int, start_V: NDArray[np.int64], frames: int,
    feature_map: FeatureMap, disturbance: Disturbance,
    rng: np.random.Generator,
) -> Floats:  # fmt: skip
    """The background everywhere and, where an event runs, its values as far as they are in sight."""
    place_V = plan.main_place_V[first:last]
    place_N = np.repeat(place_V, plan.frame_counts_V[first:last])
    begin, end = np.searchsorted(plan.event_video_E, [first, last])
    length_E = (plan.event_end_E - plan.event_start_E)[begin:end]
    event_K = np.repeat(np.arange(begin, end), length_E)  # K frames with an event
    within_K = np.arange(len(event_K)) - np.repeat(np.cumsum(length_E) - length_E, length_E)
    frame_K = start_V[plan.event_video_E[event_K] - first] + plan.event_start_E[event_K] + within_K

    values_KA = plan.values_EA[event_K]
    place_N[frame_K] = values_KA[:, 3]
    state_NZ = feature_map.background[place_N]
    progress_K = ((within_K + 0.5) / (plan.event_end_E - plan.event_start_E)[event_K]).astype(np.float32)
    for column, appearances in enumerate(feature_map.appearance_A):
        appearance_KZ = appearances[values_KA[:, column]]
        if ATTRIBUTES[column].name == "action":
            appearance_KZ = (
                appearance_KZ * (1 - progress_K)[:, None]
                + feature_map.ending_action[values_KA[:, column]] * progress_K[:, None]
            )
        in_sight_K = rng.random(len(event_K)) >= disturbance.out_of_sight
        state_NZ[frame_K[in_sight_K]] += appearance_KZ[in_sight_K]
    return state_NZ


def drift(
    counts_V: NDArray[np.int64], video_N: NDArray[np.int64], frame_N: NDArray[np.int64], size: float,
    rng: np.random.Generator,
) -> Floats:  # fmt: skip
    """A straight path from one random state to another over the whole video."""
    from_VZ, to_VZ = gaussian(rng, len(counts_V)), gaussian(rng, len(counts_V))
    time_N1 = (frame_N / np.maximum(counts_V - 1, 1)[video_N]).astype(np.float32)[:, None]
    return np.float32(size) * (from_VZ[video_N] * (1 - time_N1) + to_VZ[video_N] * time_N1)
