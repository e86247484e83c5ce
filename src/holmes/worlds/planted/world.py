"""The events and queries of the planted world, as tables without vectors.

A video is a row of events with gaps between them; an event is a value for each attribute. A query tells a
subset of one event's values. Which subset is chosen by counting: for every event and every subset we know
exactly how many other videos of the split hold an event with the same values, and that count is the kind.

V videos, E events, Q queries, A attributes, M masks (subsets of attributes)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holmes.records import QueryKind
from holmes.worlds.planted.vocabulary import ATTRIBUTES, SIZES

Ints = NDArray[np.int64]

FRAME_RANGE = (20, 160)
EVENT_RANGE = (3, 6)
QUERY_RANGE = (4, 6)
SHORTEST_EVENT = 3  # frames
GAP_SHARE = 0.15  # of a video, between events
SAME_ACTOR, SAME_PLACE = 0.6, 0.8  # how often an event keeps the video's main actor and place
POLYSEMOUS_AT_MOST = 5  # other fitting videos we aim for
GENERIC_AT_LEAST = 0.05  # share of the split's videos that a generic query fits, at least
CORRUPTED_SHARE = 0.5  # of the under-determined queries; the others are generic

MASKS = np.array(
    [[(mask >> a) & 1 for a in range(len(ATTRIBUTES))] for mask in range(2 ** len(ATTRIBUTES))], bool
)
EVERYTHING = len(MASKS) - 1


@dataclass(frozen=True)
class Mix:
    """Shares of the kinds; the rest is precise."""

    polysemous: float = 0.25
    underdetermined: float = 0.15


@dataclass(frozen=True)
class WorldPlan:
    """One split: its videos' events, and the queries about them."""

    frame_counts_V: Ints
    main_place_V: Ints
    event_video_E: Ints  # ascending
    event_start_E: Ints  # frames
    event_end_E: Ints
    values_EA: Ints
    query_event_Q: Ints  # queries are sorted by video
    query_mask_Q: Ints  # which attributes it tells: a row of MASKS
    corrupted_Q: NDArray[np.bool_]  # whether its telling words are garbled
    kinds_Q: NDArray[np.int8]
    also_fits: dict[int, list[int]]  # polysemous query → other videos

    @property
    def query_video_Q(self) -> Ints:
        return self.event_video_E[self.query_event_Q]


def plan_world(videos: int, mix: Mix, rng: np.random.Generator) -> WorldPlan:
    frame_counts_V = rng.integers(FRAME_RANGE[0], FRAME_RANGE[1] + 1, videos)
    event_video_E, event_start_E, event_end_E = plan_events(frame_counts_V, rng)
    values_EA, main_place_V = plan_values(event_video_E, videos, rng)
    census = Census.take(values_EA, event_video_E, videos)

    query_event_Q = plan_query_events(event_video_E, videos, rng)
    shares = [1 - mix.polysemous - mix.underdetermined, mix.polysemous, mix.underdetermined]
    wanted_Q = rng.choice(3, len(query_event_Q), p=shares)
    corrupted_Q = (wanted_Q == QueryKind.UNDERDETERMINED) & (rng.random(len(wanted_Q)) < CORRUPTED_SHARE)
    query_mask_Q, kinds_Q = choose_masks(census, query_event_Q, wanted_Q, corrupted_Q, rng)
    polysemous = np.flatnonzero(kinds_Q == QueryKind.POLYSEMOUS)
    also_fits = {
        int(query): census.other_videos(int(query_event_Q[query]), int(query_mask_Q[query]))
        for query in polysemous
    }
    return WorldPlan(
        frame_counts_V, main_place_V, event_video_E, event_start_E, event_end_E, values_EA,
        query_event_Q, query_mask_Q, corrupted_Q, kinds_Q, also_fits,
    )  # fmt: skip


def plan_events(frame_counts_V: Ints, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Uneven events one after the other with gaps between: a moment is 3 frames to most of the video."""
    most_V = np.minimum(EVENT_RANGE[1], frame_counts_V // (2 * SHORTEST_EVENT))
    events_V = rng.integers(np.minimum(EVENT_RANGE[0], most_V), most_V + 1)
    event_video_E = np.repeat(np.arange(len(frame_counts_V)), events_V)
    # Shares of the video: gap, event, gap, event, …; the final gap is what is left.
    event_share_E, gap_share_E = rng.gamma(1.5, size=(2, len(event_video_E)))
    total_V = np.bincount(event_video_E, event_share_E)
    gap_total_V = np.bincount(event_video_E, gap_share_E) + rng.gamma(1.5, size=len(frame_counts_V))
    free_V = frame_counts_V - SHORTEST_EVENT * events_V
    event_frames_E = event_share_E * ((1 - GAP_SHARE) * free_V / total_V)[event_video_E]
    gap_frames_E = gap_share_E * (GAP_SHARE * free_V / gap_total_V)[event_video_E]
    span_E = gap_frames_E + event_frames_E + SHORTEST_EVENT
    before_E = np.cumsum(span_E) - span_E
    first_E = np.searchsorted(event_video_E, event_video_E)  # the video's first event
    start_E = before_E - before_E[first_E] + gap_frames_E
    end_E = start_E + event_frames_E + SHORTEST_EVENT
    return event_video_E, np.floor(start_E).astype(np.int64), np.floor(end_E).astype(np.int64)


def plan_values(event_video_E: Ints, videos: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Uniform values, but a video mostly keeps its actor and its place."""
    values_EA = rng.integers(0, SIZES, (len(event_video_E), len(SIZES)))
    main_VA = rng.integers(0, SIZES, (videos, len(SIZES)))
    for column, share in ((0, SAME_ACTOR), (3, SAME_PLACE)):
        keeps_E = rng.random(len(values_EA)) < share
        values_EA[keeps_E, column] = main_VA[event_video_E[keeps_E], column]
    return values_EA, main_VA[:, 3]


def plan_query_events(event_video_E: Ints, videos: int, rng: np.random.Generator) -> Ints:
    """4 to 6 queries per video, spread over its events in random order before any is asked about twice."""
    events_V, first_V = np.bincount(event_video_E), np.searchsorted(event_video_E, np.arange(videos))
    queries_V = rng.integers(QUERY_RANGE[0], QUERY_RANGE[1] + 1, videos)
    video_Q = np.repeat(np.arange(videos), queries_V)
    number_Q = np.arange(len(video_Q)) - np.repeat(np.cumsum(queries_V) - queries_V, queries_V)
    turn_V = rng.integers(0, events_V)
    return first_V[video_Q] + (number_Q + turn_V[video_Q]) % events_V[video_Q]


@dataclass(frozen=True)
class Census:
    """For every subset of attributes: which videos hold which combinations of values."""

    keys_ME: Ints  # an event's values under a mask, as one number
    others_ME: Ints  # how many other videos hold them too
    here_ME: Ints  # how many events of its own video hold them
    pairs_M: tuple[Ints, ...]  # sorted distinct key · V + video
    event_video_E: Ints
    videos: int

    @classmethod
    def take(cls, values_EA: Ints, event_video_E: Ints, videos: int) -> Census:
        radix_A = np.concatenate([[1], np.cumprod(SIZES[:-1])])
        keys_ME = (MASKS * radix_A).astype(np.int64) @ values_EA.T
        others_ME, here_ME, pairs_M = np.empty_like(keys_ME), np.empty_like(keys_ME), []
        for mask, keys_E in enumerate(keys_ME):
            pairs, inverse_E, here = np.unique(
                keys_E * videos + event_video_E, return_inverse=True, return_counts=True
            )
            _, key_inverse, holders = np.unique(pairs // videos, return_inverse=True, return_counts=True)
            others_ME[mask], here_ME[mask] = holders[key_inverse][inverse_E] - 1, here[inverse_E]
            pairs_M.append(pairs)
        return cls(keys_ME, others_ME, here_ME, tuple(pairs_M), event_video_E, videos)

    def other_videos(self, event: int, mask: int) -> list[int]:
        pairs, key = self.pairs_M[mask], self.keys_ME[mask, event]
        start, end = np.searchsorted(pairs, [key * self.videos, (key + 1) * self.videos])
        holders = pairs[start:end] % self.videos
        return [int(video) for video in holders if video != self.event_video_E[event]]


def choose_masks(
    census: Census,
    query_event_Q: Ints,
    wanted_Q: Ints,
    corrupted_Q: NDArray[np.bool_],
    rng: np.random.Generator,
) -> tuple[Ints, NDArray[np.int8]]:
    """A random subset that gives the query its wanted kind; where none does, the query tells everything."""
    others_QM, alone_QM = census.others_ME.T[query_event_Q], census.here_ME.T[query_event_Q] == 1
    told_M = MASKS.sum(1)
    many = min(census.videos - 1, max(10, int(GENERIC_AT_LEAST * census.videos)))
    precise_QM = (others_QM == 0) & alone_QM & (told_M >= 2)
    polysemous_QM = (others_QM >= 1) & (others_QM <= POLYSEMOUS_AT_MOST) & alone_QM & (told_M >= 1)
    generic_QM = (others_QM >= many) & (told_M <= 1)
    garbled_QM = np.broadcast_to((told_M >= 2) & (told_M <= 4), others_QM.shape)
    kind_Q1 = np.where(corrupted_Q, 3, wanted_Q)[:, None]
    eligible_QM = np.choose(kind_Q1, [precise_QM, polysemous_QM, generic_QM, garbled_QM])

    found_Q = eligible_QM.any(1)
    mask_Q = np.where(eligible_QM, rng.random(eligible_QM.shape), -1).argmax(1)
    mask_Q[~found_Q] = EVERYTHING
    unique_Q = census.others_ME[EVERYTHING, query_event_Q] == 0
    whole_event_Q = np.where(unique_Q, QueryKind.PRECISE, QueryKind.POLYSEMOUS)
    return mask_Q, np.where(found_Q, wanted_Q, whole_event_Q).astype(np.int8)
