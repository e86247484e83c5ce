"""The world of seen, said and written facts: what is a film's own, and what two kinds together tell apart."""

from __future__ import annotations

from collections import Counter

import pytest
from fact_films import SHARED_BY, plan_facts, shared_groups

from holmes.errors import HolmesError


@pytest.mark.parametrize("films", [30, 104])
def test_own_facts_are_unique_and_shared_ones_are_told_apart_by_two(films: int) -> None:
    planned, queries = plan_facts(films, seed=3)
    for kind in range(3):
        own = Counter(film.own[kind].text for film in planned)
        assert kind == 0 or max(own.values()) == 1  # one look has several words
        shared = Counter(film.shared[kind].text for film in planned)
        assert kind == 0 or max(shared.values()) <= SHARED_BY
    assert not {film.appearances[0] for film in planned} & {film.appearances[1] for film in planned}
    for one, other in ((0, 1), (0, 2), (1, 2)):
        pairs = Counter((groups[one], groups[other]) for groups in shared_groups(films))
        assert max(pairs.values()) == 1
    there = Counter(query.kind for query in queries if query.film is not None)
    absent = Counter(query.kind for query in queries if query.film is None)
    assert {kind: count // films for kind, count in there.items()} == {
        kind: count // (films // 4) for kind, count in absent.items()
    }
    said = {fact.text for film in planned for fact in (*film.own, *film.shared)}
    assert not any(
        query.text.removeprefix("someone says ") in said for query in queries if query.film is None
    )
    asked = {query.text for query in queries if query.film is not None and query.kind != "seen"}
    assert not any(query.text in asked for query in queries if query.film is None)
    parts = set(" ".join(asked).split())
    mixed = [query.text for query in queries if query.film is None and " and " in query.kind]
    assert all(set(text.split()) <= parts for text in mixed)  # each fact is there, in another film
    assert plan_facts(films, seed=3) == (planned, queries)


def test_too_few_films_cannot_share() -> None:
    with pytest.raises(HolmesError, match="too few"):
        plan_facts(3)
    with pytest.raises(HolmesError, match="too many"):
        plan_facts(200)
