"""Kinds of query, against sets and sorted lists (eq. 7, 10-14)."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twins
from holmes.evidence.dirichlet import (
    bounded_evidence,
    concentration,
    expected_entropy,
    opinion,
    sharp_evidence,
)
from holmes.evidence.query_kinds import (
    adaptive_thresholds,
    below_batch_median,
    below_candidate_median,
    confidence_dominance,
    identify,
    keep_candidates,
    label_consistency,
    masked_median,
    relative_thresholds,
    trust_clip,
    trust_frame,
    uncertainty_dominance,
)
from holmes.records import QueryKind
from small import assert_close, tensor

P, N, U = QueryKind.PRECISE, QueryKind.POLYSEMOUS, QueryKind.UNDERDETERMINED
RULES = {"batch": below_batch_median, "candidates": below_candidate_median, "none": keep_candidates}
FORMS = {
    "released": (sharp_evidence, twins.released_evidence),
    "printed": (bounded_evidence, twins.printed_evidence),
}


def random_batch(seed: int, queries: int, videos: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores in which some queries find their video, some do not and some respond to nothing."""
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, videos, queries)
    similarity = rng.uniform(-0.2, 0.5, (queries, videos))
    similarity[np.arange(queries), owner] += rng.choice([0.0, 0.3, 0.5], queries)
    similarity[rng.random(queries) < 0.2] -= 0.5
    return similarity, owner


def kinds(
    similarity, owner, temperature, refine=below_batch_median, form=sharp_evidence, mask=None, beta=0.3
):
    """A branch's partition by the package, in float64 so that no comparison hangs on rounding."""
    similarity, owner = torch.as_tensor(similarity), torch.as_tensor(owner)
    evidence = form(similarity, temperature)
    return identify(
        uncertainty_Q=opinion(evidence).uncertainty_Q,
        label_consistency_Q=label_consistency(similarity, owner),
        entropy_Q=expected_entropy(concentration(evidence)),
        correct_Q=similarity.argmax(1) == owner,
        mask_Q=torch.ones(len(owner), dtype=torch.bool) if mask is None else mask,
        beta=beta,
        refine=refine,
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", RULES)
@given(
    seed=st.integers(0, 10_000),
    queries=st.integers(1, 14),
    videos=st.integers(1, 7),
    temperature=st.sampled_from((0.1, 0.2, 0.5)),
    beta=st.sampled_from((0.1, 0.3, 0.5)),
)
def test_partition_equals_the_sets(rule, form, seed, queries, videos, temperature, beta):
    similarity, owner = random_batch(seed, queries, videos)
    ours_form, twin_form = FORMS[form]
    ours = kinds(similarity, owner, temperature, RULES[rule], ours_form, beta=beta)
    assert ours.tolist() == twins.partition(similarity, owner, temperature, beta, twin_form, rule)


def test_the_batches_above_hold_every_kind():
    """Otherwise the comparison with the sets would say little."""
    seen = set()
    for seed in range(30):
        for rule in ("batch", "candidates"):
            seen |= {(rule, k) for k in twins.partition(*random_batch(seed, 14, 6), 0.2, median=rule)}
    assert seen == {(rule, kind) for rule in ("batch", "candidates") for kind in (P, N, U)}


def test_the_two_median_rules_by_hand():
    """ξ of six queries, four of them candidates. The batch's lower median is 3; the candidates' is 3.5."""
    entropy = tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    candidate = torch.tensor([False, True, True, True, True, False])
    everyone = torch.ones(6, dtype=torch.bool)
    assert below_batch_median(entropy, candidate, everyone).tolist() == [0, 1, 1, 0, 0, 0]
    assert below_candidate_median(entropy, candidate, everyone).tolist() == [0, 1, 1, 0, 0, 0]
    # Five candidates: the middle one is 'at most' the batch's median, never 'below' the candidates' own.
    candidate[0] = True
    assert below_batch_median(entropy, candidate, everyone).tolist() == [1, 1, 1, 0, 0, 0]
    assert below_candidate_median(entropy, candidate, everyone).tolist() == [1, 1, 0, 0, 0, 0]
    assert keep_candidates(entropy, candidate, everyone).tolist() == candidate.tolist()


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(0, 4))
def test_medians_are_those_of_sorted_lists(seed, real, spare):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=real + spare)
    mask = rng.permutation(np.arange(real + spare) < real)
    kept = values[mask].tolist()
    ours = [masked_median(torch.from_numpy(values), torch.from_numpy(mask), lower) for lower in (True, False)]
    assert ours[0].item() == twins.statistics.median_low(kept)
    assert ours[1].item() == pytest.approx(twins.statistics.median(kept))


def test_a_threshold_value_itself_counts_as_certain_and_as_consistent():
    """u > β_u is under-determined and c ≥ β_p a candidate: equality falls on the precise side."""
    u, c = tensor([0.2, 0.5, 0.6, 0.2]), tensor([0.9, 0.4, 0.9, 0.39])
    correct, everyone = torch.tensor([True, True, False, False]), torch.ones(4, dtype=torch.bool)
    types = identify(u, c, torch.zeros(4), correct, everyone, beta=0.3, refine=keep_candidates)
    assert types.tolist() == [P, P, U, N]


@given(st.integers(0, 10_000), st.integers(1, 9), st.floats(0.05, 0.95))
def test_thresholds_equal_the_loop(seed, queries, beta):
    rng = np.random.default_rng(seed)
    u, c, correct = rng.random(queries), rng.random(queries), rng.random(queries) < 0.4
    ours = adaptive_thresholds(*(torch.from_numpy(x) for x in (u, c, correct)), beta=beta)
    ceiling, floor = twins.thresholds(u, c, correct, beta)
    assert ours.uncertainty_ceiling.item() == pytest.approx(ceiling)
    assert ours.consistency_floor.item() == pytest.approx(floor)


def test_without_a_correct_query_the_bounds_stand_alone():
    limits = adaptive_thresholds(tensor([0.1]), tensor([0.9]), torch.tensor([False]), beta=0.3)
    assert limits.uncertainty_ceiling.item() == pytest.approx(0.7)
    assert limits.consistency_floor.item() == pytest.approx(0.3)
    similarity = np.array([[0.5, 0.1, 0.1], [0.6, 0.2, 0.1], [-0.9, -0.95, -0.9]])
    owner = np.array([1, 2, 1])
    assert kinds(similarity, owner, 0.2).tolist() == twins.partition(similarity, owner, 0.2)


@given(st.integers(0, 10_000), st.integers(1, 30), st.floats(0.05, 0.95))
def test_relative_thresholds_equal_numpys_quantiles(seed, queries, beta):
    rng = np.random.default_rng(seed)
    u, c, correct = rng.random(queries), rng.random(queries), rng.random(queries) < 0.4
    ours = relative_thresholds(*(torch.from_numpy(x) for x in (u, c, correct)), beta=beta)
    expected = (np.inf, np.inf)
    if correct.any():
        expected = (
            np.quantile(u[correct], 1 - beta, method="lower"),
            np.quantile(c[correct], beta, method="lower"),
        )
    assert (ours.uncertainty_ceiling.item(), ours.consistency_floor.item()) == expected


def test_relative_thresholds_do_not_know_the_scale():
    """Cosines a tenth as large: the printed rule finds no precise query any more, the relative one does."""
    rng = np.random.default_rng(0)
    u, c = torch.from_numpy(rng.random(40)), torch.from_numpy(rng.uniform(0.3, 1, 40))
    correct, everyone = torch.from_numpy(rng.random(40) < 0.6), torch.ones(40, dtype=torch.bool)
    arguments = (torch.zeros(40), correct, everyone, 0.3, keep_candidates)
    whole, small = (identify(u, scale * c, *arguments, relative_thresholds) for scale in (1, 0.1))
    assert torch.equal(whole, small) and set(whole.tolist()) == {P, N, U}
    assert P not in identify(u, 0.1 * c, *arguments)


def test_label_consistency_is_the_owners_response_or_nothing():
    assert_close(label_consistency(tensor([[0.1, 0.7], [-0.4, 0.2]]), torch.tensor([1, 0])), [0.7, 0.0])


@pytest.mark.parametrize("frame, clip", list(product(QueryKind, repeat=2)))
def test_every_pair_of_kinds_merges_as_printed(frame, clip):
    """Eq. 14, all nine cases, and the alternatives of the ablation table."""
    f, c = torch.tensor([int(frame)]), torch.tensor([int(clip)])
    assert uncertainty_dominance(f, c).tolist() == twins.merged_partition([frame], [clip])
    confident = P if P in (frame, clip) else N if N in (frame, clip) else U
    assert confidence_dominance(f, c).item() == confident
    assert trust_frame(f, c).item() == frame
    assert trust_clip(f, c).item() == clip


def test_the_order_of_kinds_is_that_of_uncertainty():
    """Definition 3.6; merging by maximum rests on it."""
    assert P < N < U


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("padding", [[1.0, -1, -1, -1, -1], [-0.8, -0.9, -0.9, -0.9, -0.9]])
@given(seed=st.integers(0, 10_000), spare=st.integers(1, 5))
def test_padded_queries_move_no_threshold(rule, padding, seed, spare):
    """Padding that would count: certain and first in entropy, or matched with a high u and a low c."""
    similarity, owner = random_batch(seed, 9, 5)
    padded = np.concatenate([similarity, np.tile(padding, (spare, 1))])
    owners = np.concatenate([owner, np.zeros(spare, dtype=int)])
    mask = torch.arange(9 + spare) < 9
    ours = kinds(padded, owners, 0.2, RULES[rule], mask=mask)
    assert ours[:9].tolist() == twins.partition(similarity, owner, 0.2, median=rule)


@given(st.integers(0, 10_000), st.permutations(range(6)))
def test_permuted_videos_keep_the_kinds(seed, order):
    similarity, owner = random_batch(seed, 10, 6)
    place = np.argsort(order)
    assert torch.equal(kinds(similarity, owner, 0.2), kinds(similarity[:, order], place[owner], 0.2))


def test_a_lone_query_and_a_lone_video_work():
    assert kinds(np.array([[0.9]]), np.array([0]), 0.05).tolist() == twins.partition([[0.9]], [0], 0.05)
