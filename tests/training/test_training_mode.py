"""Training mode: where dropout falls and how much, what is drawn anew, and where no gradient may flow.

Figures from outside: `golden/dropout.npz` says how much frames, clips and queries vary over many passes, with
every dropout on and with one kind of site alone.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch import multiprocessing as mp

import holmes.encoders.dropout as dropout_module
from holmes.encoders.model import HolmesModel
from holmes.losses.intra_video import intra_video_loss
from holmes.losses.objective import Objective, Weights
from holmes.records import Batch, Stage
from holmes.similarity import reference_scores
from holmes.training.optimizer import FlatAdam
from holmes.training.run import train
from holmes.training.step import TrainStep
from small import embedded, features, tiny_config
from tiny_runs import QUIET, free_port, tiny_settings, tiny_world

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from dropout_parity import SITES, Encoders, active_sites  # noqa: E402
from golden_file import Golden  # noqa: E402
from parity import main  # noqa: E402

PASSES = {"query": 320, "clips": 96, "frames": 32}


@pytest.fixture(scope="module")
def encoders() -> Encoders:
    torch.manual_seed(0)
    return Encoders(Golden(Path(__file__).parents[1] / "golden" / "dropout.npz"))


# Where dropout falls


@pytest.mark.parametrize("part", SITES)
def test_outputs_vary_as_much_as_the_released_ones(encoders, part):
    mean, variance = encoders.moments(part, PASSES[part], None)
    golden = encoders.golden
    assert variance.mean() == pytest.approx(float(golden.arrays[f"all/{part}/variance"]), rel=0.03)
    expected = encoders.valid(part, golden.tensor(f"all/{part}/mean"))
    chance = (variance * (1 / PASSES[part] + 1 / 320)).mean().sqrt()
    assert (mean - expected).square().mean().sqrt() < 1.3 * chance


# Frames and clips pass through the same code: the shorter sequences show each of its sites.
@pytest.mark.parametrize(
    ("part", "number"), [(part, number) for part in ("query", "clips") for number in range(len(SITES[part]))]
)
def test_every_site_by_itself_varies_as_the_released_one(encoders, part, number):
    site = SITES[part][number]
    _, variance = encoders.moments(part, PASSES[part], lambda passed: passed == number)
    outside = float(encoders.golden.arrays[f"{site}/{part}/variance"])
    assert variance.mean() == pytest.approx(outside, rel=0.15), site


@pytest.mark.parametrize("part", SITES)
def test_nothing_is_random_but_the_sites(encoders, part):
    """With every site switched off, training mode is evaluation mode."""
    with active_sites(lambda _: False):
        one, other = encoders.encode(part), encoders.encode(part)
    assert torch.equal(one, other)
    exact = encoders.golden.tensor(f"none/{part}/mean")
    difference = encoders.valid(part, one - exact).abs().max()
    assert difference < 1e-4 * exact.abs().max()


def test_a_dual_query_drops_in_both_its_encoders():
    config = tiny_config(dual=True, dropout=0.25)
    model, fed = HolmesModel(config).train(), features(config)
    with active_sites(lambda _: True) as sites_passed:
        model.encode_queries(fed.tokens_QTD, fed.token_lengths_Q)
        assert sites_passed() == 2 * len(SITES["query"])


def test_parity_takes_a_file_of_training_mode(monkeypatch, capsys):
    import dropout_parity

    monkeypatch.setattr(dropout_parity, "SITES", {"query": SITES["query"]})
    monkeypatch.setattr(sys, "argv", ["parity.py", str(Path(__file__).parents[1] / "golden" / "dropout.npz")])
    assert main() == 0
    assert "8 of 8 quantities agree." in capsys.readouterr().out
    monkeypatch.setattr(dropout_parity, "PASSES", {"query": 8})  # nothing varies any more
    monkeypatch.setattr(dropout_parity, "relu_dropout", None)
    for name in dropout_parity.DROPOUT_CALLS:
        monkeypatch.setitem(dropout_parity.DROPOUT_CALLS, name, lambda values, *_: values)
    assert main() == 1, "a model without dropout does not agree"


# What a step encodes


@pytest.mark.parametrize("dual", [False, True])
def test_a_step_encodes_no_token_behind_the_longest_query(dual):
    config = tiny_config(dual=dual, dropout=0.0)
    fed = features(config)
    longest = int(fed.token_lengths_Q.max())
    assert longest < config.tokens
    owners = fed.owners
    batch = Batch(
        fed.frames_VFD, fed.frame_lengths_V, fed.clips_VCD, fed.tokens_QTD, fed.token_lengths_Q,
        owners.owner_Q, owners.slot_Q, owners.queries_per_video,
    )  # fmt: skip
    model = HolmesModel(config).train()
    step = TrainStep(model, Objective(Weights(0.1, 0.1, 0.1, 0.1, 0.1), 0.1, 0.1), FlatAdam(model))
    whole, seen = model.encode_queries(fed.tokens_QTD, fed.token_lengths_Q), []
    model.pool.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
    query, _ = step.encode(batch)
    assert seen == [longest]
    torch.testing.assert_close(query.query_QD, whole.query_QD)
    if dual:
        torch.testing.assert_close(query.token_weights_QT, whole.token_weights_QT[:, :longest])


def test_a_step_scores_no_frame_behind_the_longest_video():
    config = tiny_config(dropout=0.0)
    fed = features(config)
    longest = int(fed.frame_lengths_V.max())
    assert longest < config.frames
    owners = fed.owners
    batch = Batch(
        fed.frames_VFD, fed.frame_lengths_V, fed.clips_VCD, fed.tokens_QTD, fed.token_lengths_Q,
        owners.owner_Q, owners.slot_Q, owners.queries_per_video,
    )  # fmt: skip
    model = HolmesModel(config).train()
    step = TrainStep(model, Objective(Weights(0.1, 0.1, 0.1, 0.1, 0.1), 0.1, 0.1), FlatAdam(model))
    whole = model.encode_videos(fed.frames_VFD, fed.frame_lengths_V, fed.clips_VCD)
    _, video = step.encode(batch)
    assert video.frame_mask_VF.shape == video.frames_VFD.shape[:2] == (len(fed.clips_VCD), longest)
    torch.testing.assert_close(video.frames_VFD, whole.frames_VFD[:, :longest])
    assert torch.equal(video.frame_mask_VF, whole.frame_mask_VF[:, :longest])


# What a run draws


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tiny_world(tmp_path_factory.mktemp("mode") / "world")


class Witness:
    """Notes what every training step of a run draws, and in which mode it draws it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.negatives: list[Tensor] = []
        self.dropped: list[Tensor] = []
        self.modes: list[tuple[bool, bool]] = []
        step, encode = TrainStep.__call__, HolmesModel.encode_videos
        random_bytes = dropout_module.random_bytes

        def watched_step(this: TrainStep, batch: Any, stage: Stage, uniform_QV: Tensor, rate: Tensor) -> Any:
            self.negatives.append(uniform_QV.clone())
            self.new_step = True
            return step(this, batch, stage, uniform_QV, rate)

        def watched_bytes(shape: torch.Size, device: torch.device) -> Tensor:
            drawn = random_bytes(shape, device)
            if self.new_step:
                self.dropped.append(drawn.flatten()[:64].clone())
                self.new_step = False
            return drawn

        def watched_encode(this: HolmesModel, *inputs: Tensor) -> Any:
            self.modes.append((this.training, torch.is_grad_enabled()))
            return encode(this, *inputs)

        self.new_step = False
        monkeypatch.setattr(TrainStep, "__call__", watched_step)
        monkeypatch.setattr(dropout_module, "random_bytes", watched_bytes)
        monkeypatch.setattr(HolmesModel, "encode_videos", watched_encode)


def all_differ(tensors: list[Tensor]) -> bool:
    return len({tuple(tensor.flatten()[:64].tolist()) for tensor in tensors}) == len(tensors)


def test_a_run_trains_in_training_mode_and_evaluates_in_the_other(store, tmp_path, monkeypatch):
    witness = Witness(monkeypatch)
    train(store, tiny_settings(epochs=3), tmp_path, options=QUIET)
    steps = len(witness.negatives)
    assert witness.modes.count((True, True)) == steps == 3 * 2, "after an evaluation training goes on"
    assert set(witness.modes) == {(True, True), (False, False)}
    assert len(witness.dropped) == steps, "every step drops something"


def test_no_two_steps_or_epochs_draw_alike(store, tmp_path, monkeypatch):
    witness = Witness(monkeypatch)
    train(store, tiny_settings(epochs=3), tmp_path, options=QUIET)
    assert all_differ(witness.negatives), "negatives of an epoch would be those of another"
    assert all_differ(witness.dropped), "dropout of an epoch would be that of another"


def rank_of_two(rank: int, port: int, store: Path, out: Path) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(rank)}
    with pytest.MonkeyPatch.context() as monkeypatch:
        witness = Witness(monkeypatch)
        train(store, tiny_settings(epochs=2, held_out=0.2), out / "run", options=QUIET)
        torch.save([witness.negatives, witness.dropped], out / f"{rank}.pt")


def test_ranks_share_their_chances_and_not_their_dropout(store, tmp_path):
    """Both see the whole batch, so both must draw the same negatives for it; each drops on its own."""
    multiprocessing.set_forkserver_preload(["holmes.training.run"])
    mp.start_processes(rank_of_two, (free_port(), store.path, tmp_path), nprocs=2, start_method="forkserver")
    (negatives, dropped), (others, others_dropped) = (
        torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)
    )
    assert all(torch.equal(one, other) for one, other in zip(negatives, others, strict=True))
    assert all_differ(negatives)
    for uniform_QV in negatives:
        first, second = uniform_QV.chunk(2)
        assert not torch.equal(first, second), "queries of one rank would meet the other's negatives"
    assert all_differ(dropped + others_dropped)


# Where no gradient may flow


def test_kinds_are_found_without_a_graph():
    seen = []

    def watched_evidence(similarity_QV: Tensor, temperature: float) -> Tensor:
        seen.append(torch.is_grad_enabled())
        return torch.exp(torch.tanh(similarity_QV) / temperature)

    objective = Objective(Weights(0.1, 0.1, 0.1, 0.1, 0.1), 0.1, 0.1, evidence=watched_evidence)
    batch = embedded(0, (2, 1, 3))
    objective.identify_queries(reference_scores(batch.query, batch.video), batch.owners)
    assert seen == [False, False]


def test_an_alignment_that_keeps_its_gradient_still_gives_a_constant_label():
    torch.manual_seed(0)
    query_VMD, clips_VCD = torch.randn(2, 3, 8, requires_grad=True), torch.randn(2, 5, 8)
    mask_VM = torch.ones(2, 3, dtype=torch.bool)

    def leaky(similarity_VMC: Tensor, _: Tensor) -> Tensor:
        return similarity_VMC.softmax(-1)

    def tight(similarity_VMC: Tensor, _: Tensor) -> Tensor:
        return similarity_VMC.detach().softmax(-1)

    gradients = [
        torch.autograd.grad(intra_video_loss(query_VMD, clips_VCD, mask_VM, 0.2, align), query_VMD)[0]
        for align in (leaky, tight)
    ]
    assert torch.equal(*gradients)
