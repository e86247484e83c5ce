"""The objective of a stage (eq. 21): its parts against the twins, its invariances and its gradients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import twins
from holmes.evidence.dirichlet import bounded_evidence
from holmes.evidence.query_kinds import (
    below_candidate_median,
    confidence_dominance,
    keep_candidates,
    trust_clip,
    trust_frame,
    uncertainty_dominance,
)
from holmes.losses.objective import Objective, QueryOwners, Weights, kind_shares
from holmes.records import QueryEmbedding, QueryKind, Scores, Stage, VideoEmbedding, each_tensor
from holmes.similarity import cosine_and_dot
from small import Embedded, assert_close, embedded, features, tensor, tiny_model

WEIGHTS = Weights(contrastive_clip=0.05, contrastive_frame=0.04, diversity=0.02, intra=0.8, inter=0.2)
OBJECTIVE = Objective(WEIGHTS, inter_temperature=0.2, intra_temperature=0.15, margin=0.1, hard_pool=1)
PART_WEIGHTS = {
    "triplet_frame": 1.0,
    "triplet_clip": 1.0,
    "contrastive_frame": 0.04,
    "contrastive_clip": 0.05,
    "diversity": 0.02,
    "inter_frame": 0.2,
    "inter_clip": 0.2,
    "inter_fused": 0.2,
    "intra": 0.8,
}
seeds = st.integers(0, 10_000)


def losses(world: Embedded, stage: Stage, objective: Objective = OBJECTIVE, hard: bool | None = True):
    torch.manual_seed(0)
    # Drawn for more queries than there are: spare ones then leave the numbers of the others alone.
    uniform_QV = torch.rand(32, len(world.clips))[: len(world.owners.owner_Q)]
    return objective(world.query, world.video, world.owners, stage, uniform_QV, hard)


def twin_scores(world: Embedded) -> dict[str, np.ndarray]:
    clips = {"clip": (world.queries, world.clips)}
    scores = {"clip": twins.scores(*clips["clip"]), "clip_raw": twins.scores(*clips["clip"], twins.dot)}
    if world.query.tokens_QTD is None:
        frames = partial(twins.scores, world.queries, world.frames)
        return scores | {"frame": frames(twins.cosine), "frame_raw": frames(twins.dot)}
    frame = twins.token_scores(world.tokens, world.weights, world.frames, twins.cosine)
    raw = twins.token_scores(world.tokens, world.raw_weights, world.frames, twins.dot)
    return scores | {"frame": frame, "frame_raw": raw}


def twin_parts(world: Embedded, stage: Stage) -> tuple[dict[str, float], list[int]]:
    """Every part by the slow way, with hardest negatives."""
    s = twin_scores(world)
    kinds = twins.merged_partition(*(twins.partition(s[b], world.owner, 0.2) for b in ("frame", "clip")))
    softened = kinds if stage is Stage.CALIBRATED else [QueryKind.PRECISE] * len(kinds)
    rows = zip(s["frame"], s["clip"], world.owner, softened, strict=True)
    targets = np.array([twins.calibrated_label(f, c, o, kind, 0.2) for f, c, o, kind in rows])
    parts = {
        "triplet_frame": twins.hard_triplet(s["frame"], world.owner, 0.1),
        "triplet_clip": twins.hard_triplet(s["clip"], world.owner, 0.1),
        "contrastive_frame": twins.info_nce(s["frame_raw"], world.owner),
        "contrastive_clip": twins.info_nce(s["clip_raw"], world.owner),
        "diversity": twins.diversity(world.groups, 0.15),
    }
    inter = twins.inter_video_terms(s["frame"], s["clip"], targets, 0.2)
    parts |= {f"inter_{name}": value for name, value in inter.items()}
    if stage is Stage.CALIBRATED:
        parts["intra"] = twins.intra_video_loss(world.groups, world.clips, 0.15)
    return parts, kinds


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("dual", [False, True])
@settings(max_examples=10)
@given(seed=seeds, spare=st.integers(0, 2))
def test_parts_and_total_equal_the_twins(stage, dual, seed, spare):
    world = embedded(seed, dual=dual, spare_queries=spare, spare_slots=spare, spare_frames=spare)
    ours = losses(world, stage)
    twin, kinds = twin_parts(world, stage)
    assert {name: pytest.approx(part.item(), rel=2e-4, abs=1e-6) for name, part in ours.parts.items()} == twin
    total = sum(PART_WEIGHTS[name] * value for name, value in twin.items())
    assert ours.total.item() == pytest.approx(total, rel=1e-4)
    assert ours.kinds_Q[: len(kinds)].tolist() == kinds


def test_stages_differ_in_what_the_paper_says():
    """Stage 2 adds L_intra, calibrated labels and hard negatives; the rest is the same."""
    world = embedded(3)
    first, second = losses(world, Stage.WARM_UP, hard=None), losses(world, Stage.CALIBRATED, hard=None)
    assert (first.kinds_Q == QueryKind.POLYSEMOUS).any()
    changed = {name for name in first.parts if first.parts[name] != second.parts[name]}
    assert changed == {"triplet_frame", "triplet_clip", "inter_frame", "inter_clip", "inter_fused"}
    assert set(second.parts) - set(first.parts) == {"intra"}
    hard = losses(world, Stage.WARM_UP, hard=True)
    assert hard.parts["triplet_clip"] == second.parts["triplet_clip"]
    assert hard.parts["triplet_clip"] > first.parts["triplet_clip"]


def test_without_calibration_labels_stay_one_hot():
    world = embedded(3)
    plain = losses(world, Stage.CALIBRATED, replace(OBJECTIVE, calibrate=False))
    first = losses(world, Stage.WARM_UP)
    for term in ("inter_frame", "inter_clip", "inter_fused"):
        assert plain.parts[term] == first.parts[term]
    assert "intra" in plain.parts


def test_a_weight_of_zero_leaves_a_part_out():
    world = embedded(3)
    parts = losses(
        world, Stage.CALIBRATED, replace(OBJECTIVE, weights=replace(WEIGHTS, inter=0.0, intra=0.0))
    ).parts
    assert set(parts) == set(PART_WEIGHTS) - {"inter_frame", "inter_clip", "inter_fused", "intra"}


def test_infonce_on_cosines_is_a_part_of_its_own_where_asked():
    """Not in the paper: the same InfoNCE, on cosines over a temperature, one weight for both branches."""
    world = embedded(3)
    plain = losses(world, Stage.CALIBRATED)
    scores = twin_scores(world)
    weights = replace(OBJECTIVE.weights, contrastive_cosine=0.5)
    objective = replace(OBJECTIVE, weights=weights, contrastive_temperature=0.07)
    ours = losses(world, Stage.CALIBRATED, objective=objective)
    twin = {
        f"contrastive_cosine_{branch}": twins.info_nce(np.asarray(scores[branch]) / 0.07, world.owner)
        for branch in ("frame", "clip")
    }
    assert set(ours.parts) - set(plain.parts) == set(twin)
    for name, value in twin.items():
        assert ours.parts[name].item() == pytest.approx(value, rel=2e-4)
    assert (ours.total - plain.total).item() == pytest.approx(0.5 * sum(twin.values()), rel=1e-4)


def test_terms_of_l_inter_are_chosen_by_name():
    parts = losses(embedded(3), Stage.CALIBRATED, replace(OBJECTIVE, inter_terms=("clip",))).parts
    assert {name for name in parts if name.startswith("inter")} == {"inter_clip"}


@given(seeds)
def test_partition_rules_are_swapped_by_passing_another(seed):
    world = embedded(seed)
    scores = twin_scores(world)
    cosine = Scores(tensor(scores["frame"], torch.float64), tensor(scores["clip"], torch.float64))

    def kinds(**changes):
        return replace(OBJECTIVE, **changes).identify_queries(cosine, world.owners).tolist()

    def by_sets(**options):
        return [twins.partition(scores[b], world.owner, 0.2, **options) for b in ("frame", "clip")]

    frame, clip = by_sets()
    assert kinds() == twins.merged_partition(frame, clip)
    assert kinds(fuse_partitions=uncertainty_dominance) == twins.merged_partition(frame, clip)
    assert kinds(fuse_partitions=trust_frame) == frame
    assert kinds(fuse_partitions=trust_clip) == clip
    assert kinds(fuse_partitions=confidence_dominance) == [
        min(pair) for pair in zip(frame, clip, strict=True)
    ]
    assert kinds(refine=below_candidate_median) == twins.merged_partition(*by_sets(median="candidates"))
    assert kinds(refine=keep_candidates) == twins.merged_partition(*by_sets(median="none"))
    assert kinds(beta=0.5) == twins.merged_partition(*by_sets(beta=0.5))
    printed = by_sets(evidence=twins.printed_evidence)
    assert kinds(evidence=bounded_evidence) == twins.merged_partition(*printed)


@pytest.mark.parametrize("stage", Stage)
@given(
    seed=seeds,
    dual=st.booleans(),
    spare_queries=st.integers(0, 4),
    spare_slots=st.integers(0, 2),
    spare_frames=st.integers(0, 3),
    spare_tokens=st.integers(0, 2),
    hard=st.booleans(),
)
def test_more_padding_changes_nothing(stage, seed, dual, hard, **spare):
    plain, padded = embedded(seed, dual=dual), embedded(seed, dual=dual, **spare)
    one, other = (losses(world, stage, hard=hard) for world in (plain, padded))
    for name, part in one.parts.items():
        assert other.parts[name].item() == pytest.approx(part.item(), rel=1e-4, abs=1e-6), name
    assert other.total.item() == pytest.approx(one.total.item(), rel=1e-4)
    assert torch.equal(other.kinds_Q[: len(plain.owner)], one.kinds_Q)


@given(seeds, st.permutations(range(4)))
def test_permuted_videos_permute_nothing_but_themselves(seed, order):
    """With hardest negatives the sum does not depend on the order of the videos; kinds stay with queries."""
    world = embedded(seed)
    place = torch.tensor(np.argsort(order))
    moved = replace(
        world,
        video=each_tensor(world.video, lambda value: value[list(order)]),
        owners=replace(world.owners, owner_Q=place[world.owners.owner_Q]),
    )
    one, other = losses(world, Stage.CALIBRATED), losses(moved, Stage.CALIBRATED)
    assert other.total.item() == pytest.approx(one.total.item(), rel=1e-4)
    assert torch.equal(one.kinds_Q, other.kinds_Q)


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize("counts", [(1,), (3,), (1, 1)])
def test_batches_of_one_video_or_one_query_work(stage, dual, counts):
    world = embedded(1, counts, dual=dual)
    leaf = world.query.query_QD.clone().requires_grad_()
    world = replace(world, query=replace(world.query, query_QD=leaf))
    ours = losses(world, stage, hard=None)
    ours.total.backward()
    assert torch.isfinite(ours.total)
    assert torch.isfinite(leaf.grad).all()


def test_a_video_without_queries_changes_only_what_it_must():
    """It is a negative for the others; it has no triplet, InfoNCE or alignment of its own, and no NaN."""
    world = embedded(1, counts=(2, 3))
    extra = embedded(2, counts=(1,))
    frames = torch.cat([world.video.frames_VFD[:, :1], extra.video.frames_VFD[:, :1]]).requires_grad_()
    clips = torch.cat([world.video.clips_VCD, extra.video.clips_VCD]).requires_grad_()
    video = VideoEmbedding(frames, torch.ones(3, 1, dtype=torch.bool), clips)
    ours = OBJECTIVE(world.query, video, world.owners, Stage.CALIBRATED, torch.rand(5, 3), True)
    ours.total.backward()
    twin = twins.intra_video_loss(world.groups, world.clips, 0.15)
    assert ours.parts["intra"].item() == pytest.approx(twin, rel=1e-4)
    assert torch.isfinite(frames.grad).all()
    assert torch.isfinite(clips.grad).all()


@pytest.mark.parametrize("stage", Stage)
def test_similarities_of_one_and_minus_one_are_finite(stage):
    """τ = .04: evidence from e^-19 to e^19, and four queries that are clips and frames of the videos."""
    axis = torch.tensor([1.0, 0, 0, 0])
    queries = torch.stack([axis, -axis, axis, -axis]).requires_grad_()
    clips = torch.stack([torch.stack([axis] * 8), torch.stack([axis, -axis] * 4)]).requires_grad_()
    frames = torch.stack([torch.stack([-axis] * 5), torch.stack([axis] * 5)]).requires_grad_()
    video = VideoEmbedding(frames, torch.ones(2, 5, dtype=torch.bool), clips)
    owners = QueryOwners(
        torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), torch.ones(4, dtype=torch.bool), 2
    )
    objective = replace(OBJECTIVE, inter_temperature=0.04, intra_temperature=0.04)
    cosine, _ = cosine_and_dot(QueryEmbedding(queries), video)
    assert set(cosine.frame_QV.flatten().tolist()) == {-1.0, 1.0}
    ours = objective(QueryEmbedding(queries), video, owners, stage, torch.rand(4, 2))
    ours.total.backward()
    assert torch.isfinite(ours.total)
    for leaf in (queries, clips, frames):
        assert torch.isfinite(leaf.grad).all()


def forward(model, fed, stage, objective=OBJECTIVE):
    video = model.encode_videos(fed.frames_VFD, fed.frame_lengths_V, fed.clips_VCD)
    query = model.encode_queries(fed.tokens_QTD, fed.token_lengths_Q)
    torch.manual_seed(0)
    uniform_QV = torch.rand(len(fed.token_lengths_Q), len(fed.frame_lengths_V))
    return objective(query, video, fed.owners, stage, uniform_QV, True)


@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize("stage", Stage)
def test_one_video_of_one_frame_with_one_query_of_one_token(stage, dual):
    model = tiny_model(dual).train()
    fed = features(model.config, counts=(1,))
    one = torch.tensor([1])
    ours = forward(model, replace(fed, frame_lengths_V=one, token_lengths_Q=one), stage)
    ours.total.backward()
    assert torch.isfinite(ours.total)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize("stage", Stage)
def test_bf16_autocast_is_finite_and_near(stage, dual):
    model = tiny_model(dual, spread=0.1).train()
    fed = features(model.config, counts=(3, 2, 4, 1))
    sharp = replace(OBJECTIVE, inter_temperature=0.04, intra_temperature=0.04)
    for objective in (OBJECTIVE, sharp):
        exact = forward(model, fed, stage, objective).total.item()
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours = forward(model, fed, stage, objective)
        ours.total.backward()
        assert all(part.dtype == torch.float32 for part in ours.parts.values())
        assert torch.isfinite(ours.total)
        assert all(torch.isfinite(p.grad).all() for p in model.parameters())
        assert ours.total.item() == pytest.approx(exact, rel=0.1)


# A softmax does not change when all its logits move together, so the gradient of these biases is nothing but
# rounding. The published weights have them.
SHIFTS = ("mix.ask.key.bias", "mix.weigh.bias", "token_weights.weigh.bias")


@pytest.mark.parametrize("dual", [False, True])
def test_every_parameter_gets_a_gradient_in_stage_two(dual):
    model = tiny_model(dual, seed=1).train()
    forward(model, features(model.config, counts=(3, 2, 4, 1)), Stage.CALIBRATED).total.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []

    def tensors(name: str, gradient: torch.Tensor) -> list[torch.Tensor]:
        """The tensor itself, or those stacked in it: one for every block, or every projection and block."""
        if "_KG" in name:
            key, plain = 1, 0  # the key's bias of a block of plain attention is another such shift
            shift = [(key, plain)] if "bias" in name else []
            return [gradient[at] for at in np.ndindex(gradient.shape[:2]) if at not in shift]
        return list(gradient) if "_G" in name else [gradient]

    idle = [name for name, p in model.named_parameters() if not all(g.any() for g in tensors(name, p.grad))]
    assert [name for name in idle if not name.endswith(SHIFTS)] == []


def test_no_gradient_through_kinds_or_thresholds():
    world = embedded(2)
    leaf = world.query.query_QD.clone().requires_grad_()
    ours = losses(replace(world, query=replace(world.query, query_QD=leaf)), Stage.CALIBRATED)
    assert not ours.kinds_Q.requires_grad
    assert ours.total.requires_grad


def test_regrouping_by_video():
    owners = QueryOwners(
        owner_Q=torch.tensor([0, 0, 2, 0]),
        slot_Q=torch.tensor([0, 1, 0, 0]),
        mask_Q=torch.tensor([True, True, True, False]),
        queries_per_video=2,
    )
    queries = torch.arange(1.0, 5).unsqueeze(1).requires_grad_()
    grouped, mask = owners.by_video(queries, videos=3)
    assert mask.tolist() == [[True, True], [False, False], [True, False]]
    assert grouped.squeeze(-1).tolist() == [[1, 2], [0, 0], [3, 0]]
    grouped.sum().backward()
    assert queries.grad.flatten().tolist() == [1, 1, 1, 0]


def test_shares_of_kinds_leave_padding_out():
    kinds = torch.tensor([0, 2, 2, 1, 1])
    assert_close(kind_shares(kinds, torch.tensor([True, True, True, True, False])), [0.25, 0.25, 0.5])
