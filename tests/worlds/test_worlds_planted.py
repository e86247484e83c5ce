"""The planted world: its answers are recomputed here from the sentences alone."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from holmes.data.check import check_store
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.records import QueryKind
from holmes.worlds.planted import Mix, PlantSettings, plant
from holmes.worlds.planted.generate import generator
from holmes.worlds.planted.language import Dictionary, token_vectors, words
from holmes.worlds.planted.scenery import Disturbance, FeatureMap, film
from holmes.worlds.planted.vocabulary import ATTRIBUTES
from holmes.worlds.planted.world import WorldPlan, plan_world

SETTINGS = PlantSettings(videos=60, val_videos=20, test_videos=40, seed=5, video_width=32, text_width=24)
MEANING = {
    name.split()[-1]: (column, value)
    for column, attribute in enumerate(ATTRIBUTES)
    for value, names in enumerate(attribute.values)
    for name in names
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    path = tmp_path_factory.mktemp("planted") / "store"
    plant(path, SETTINGS)
    return Store.open(path)


@cache
def plan_of(split: str) -> WorldPlan:
    return plan_world(SETTINGS.splits[split], SETTINGS.mix, generator(SETTINGS, split, "plan"))


def told(caption: str) -> dict[int, int]:
    """Attribute → value, read from the words."""
    return dict(MEANING[word] for word in words(caption) if word in MEANING)


def fitting_videos(store: Store, split: str, query: int) -> set[int]:
    """Which videos of the split hold an event with everything the caption tells: plain loops."""
    plan = plan_of(split)
    wanted, first = told(store.captions[query]), int(store.split(split).videos[0])
    return {
        first + int(video)
        for video, values in zip(plan.event_video_E, plan.values_EA, strict=True)
        if all(values[column] == value for column, value in wanted.items())
    }


def test_every_word_means_one_thing() -> None:
    names = [name for attribute in ATTRIBUTES for value in attribute.values for name in value]
    assert len({name.split()[-1] for name in names}) == len(names)


@pytest.mark.parametrize("split", ["train", "test"])
def test_kinds_and_fits_follow_from_the_words(store: Store, split: str) -> None:
    seen = set()
    for query in store.split(split).queries.tolist():
        owner, kind = int(store.owner_Q[query]), QueryKind(store.kinds_Q[query])
        fits = fitting_videos(store, split, query)
        assert owner in fits
        others = sorted(fits - {owner})
        seen.add(kind)
        if kind == QueryKind.PRECISE:
            assert others == [] and query not in store.also_fits
        elif kind == QueryKind.POLYSEMOUS:
            assert others == store.also_fits[query] and others
        else:
            assert len(others) >= 10 or len(told(store.captions[query])) == 0
            assert query not in store.also_fits
    assert seen == set(QueryKind)


def test_moments_lie_on_the_told_event(store: Store) -> None:
    plan = plan_of("train")
    for query in store.split("train").queries.tolist():
        video, start, end = int(store.owner_Q[query]), *store.moments_Q2[query]
        frames = plan.frame_counts_V[video]
        event = [
            e
            for e in np.flatnonzero(plan.event_video_E == video)
            if np.allclose([plan.event_start_E[e] / frames, plan.event_end_E[e] / frames], [start, end])
        ]
        assert len(event) == 1
        values = plan.values_EA[event[0]]
        assert all(values[column] == value for column, value in told(store.captions[query]).items())
        assert store.durations_V[video] == frames / 2


def test_events_fill_their_videos_without_overlap() -> None:
    plan = plan_world(300, Mix(), np.random.default_rng(0))
    assert plan.frame_counts_V.min() >= 20 and plan.frame_counts_V.max() <= 160
    assert (plan.event_end_E - plan.event_start_E >= 3).all()
    for video in range(300):
        mine = plan.event_video_E == video
        starts, ends = plan.event_start_E[mine], plan.event_end_E[mine]
        assert 2 < mine.sum() < 7 and starts[0] >= 0 and ends[-1] <= plan.frame_counts_V[video]
        assert (starts[1:] >= ends[:-1]).all()
    queries = np.bincount(plan.query_video_Q)
    assert queries.min() >= 4 and queries.max() <= 6 and (np.diff(plan.query_video_Q) >= 0).all()


def test_the_mix_is_what_was_asked_for() -> None:
    for mix in (Mix(), Mix(0, 0), Mix(0.7, 0.3)):
        kinds = np.bincount(plan_world(800, mix, np.random.default_rng(1)).kinds_Q, minlength=3) / (800 * 5)
        np.testing.assert_allclose(kinds[1:], [mix.polysemous, mix.underdetermined], atol=0.04)


def test_the_store_is_whole_and_the_same_every_time(store: Store, tmp_path: Path) -> None:
    check_store(store)
    assert {name: sizes["videos"] for name, sizes in store.info.splits.items()} == SETTINGS.splits
    plant(tmp_path / "again", SETTINGS)
    assert Store.open(tmp_path / "again").info.digest == store.info.digest
    other = PlantSettings(**{**vars(SETTINGS), "seed": 6})
    plant(tmp_path / "other", other)
    assert Store.open(tmp_path / "other").captions != store.captions


def test_frames_of_one_event_look_alike_and_difficulty_hides_it() -> None:
    """Cosine between frames that share an event, against frames of videos that share nothing."""
    plan = plan_world(40, Mix(), np.random.default_rng(2))
    start = np.cumsum(plan.frame_counts_V) - plan.frame_counts_V
    gaps = []
    for difficulty in (0.0, 1.0, 3.0):
        rows = film(plan, 0, 40, FeatureMap(64), Disturbance().times(difficulty), np.random.default_rng(3))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        first = rows[start[plan.event_video_E] + plan.event_start_E]
        last = rows[start[plan.event_video_E] + plan.event_end_E - 1]
        same = (first * last).sum(1).mean()
        gaps.append(same - (first @ last.T).mean())
    assert gaps[0] > gaps[1] > gaps[2] > 0 and gaps[0] > 0.3


def test_synonyms_are_near_and_garbled_words_far() -> None:
    dictionary = Dictionary(96)
    vector = {
        word: dictionary.vectors[dictionary.number(word)]
        for word in ("woman", "lady", "man", "kettle", "wqmxn")
    }
    near, family, far, nonsense = (vector["woman"] @ vector[w] for w in ("lady", "man", "kettle", "wqmxn"))
    assert near > 0.6 > family > 0.15 and abs(far) < 0.4 and abs(nonsense) < 0.4


def test_tokens_carry_their_sentence() -> None:
    """The same word in two sentences gets two vectors, nearer to each other than to other words."""
    captions = ["A chef slowly cuts a melon.", "A chef sells a drum on the beach."]
    rows, lengths = token_vectors(captions, Dictionary(96), 1.0, np.random.default_rng(0))
    assert lengths.tolist() == [6, 8]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    chef, chef_again, melon = rows[1], rows[6 + 1], rows[5]
    assert 0.5 < chef @ chef_again < 0.99 and chef @ melon < 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"videos": 1}, "videos is 1; a split needs at least 2"),
        ({"test_videos": 0}, "test-videos is 0"),
        ({"difficulty": -1}, "difficulty is -1"),
        ({"video_width": 2}, "widths are 2 and 192"),
        ({"mix": Mix(0.8, 0.3)}, "shares of polysemous and under-determined queries are 0.8 and 0.3"),
    ],
)
def test_refusals(change: dict, message: str) -> None:
    with pytest.raises(HolmesError, match=message):
        PlantSettings(**change)
