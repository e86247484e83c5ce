"""Two processes are one: losses, gradients and figures of two halves equal those of the whole."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch import multiprocessing as mp

from holmes.base.files import read_json
from holmes.base.parallel import ALONE, World, process_group
from holmes.config.schema import HolmesConfig
from holmes.data.bank import FeatureBank
from holmes.data.loader import BatchLoader
from holmes.data.store import Store
from holmes.encoders.model import HolmesModel
from holmes.evaluation.intervals import read_ranks
from holmes.evaluation.recall import retrieval_metrics
from holmes.evaluation.runs.evaluate import evaluate_run
from holmes.evaluation.runs.folders import find_runs
from holmes.evaluation.scoring import encode_split, score_all
from holmes.records import Stage
from holmes.training.optimizer import FlatAdam
from holmes.training.resume import RANKS
from holmes.training.run import train
from holmes.training.setup import build_objective, fit_to_store
from holmes.training.step import TrainStep
from tiny_runs import QUIET, free_port, logged, set_options, tiny_settings, tiny_world

CASES = [("tvr", Stage.WARM_UP), ("tvr", Stage.CALIBRATED), ("tvr_dual", Stage.CALIBRATED)]
BATCH, STEPS = 8, 2  # the second batch of 15 videos is filled up


@dataclass(frozen=True)
class Setting:
    """A model and its data, the same in every process."""

    config: HolmesConfig
    bank: FeatureBank
    loader: BatchLoader
    model: HolmesModel
    optimizer: FlatAdam
    step: TrainStep


def set_up(store: Store, name: str, world: World) -> Setting:
    config = fit_to_store(tiny_settings(name, dropout=0.0, epochs=1), store)
    torch.manual_seed(0)
    model = HolmesModel(config.model).train()
    with torch.no_grad():
        for parameter in model.parameters():  # large enough for every loss to matter
            parameter.add_(0.2 * torch.randn_like(parameter))
    bank, optimizer = FeatureBank(store, "cpu"), FlatAdam(model)
    loader = BatchLoader(bank, store.split("train"), BATCH, rank=world.rank, world=world.size)
    step = TrainStep(model, build_objective(config), optimizer, world)
    return Setting(config, bank, loader, model, optimizer, step)


def chances(loader: BatchLoader, step: int) -> Tensor:
    """Random numbers that belong to queries, wherever in the batch of all processes they stand."""
    queries = loader.bank.store.info.queries
    table = torch.rand(queries + 1, BATCH, generator=torch.Generator().manual_seed(1))
    ranks = [
        BatchLoader(loader.bank, loader.split, BATCH, rank=rank, world=loader.world)
        for rank in range(loader.world)
    ]
    return table[np.concatenate([each.tables(0).queries_SQ[step] for each in ranks])]


def measure(store: Store, world: World) -> list[dict[str, Any]]:
    """Losses and flat gradients of a few steps, and the figures of an evaluation."""
    found = []
    for name, stage in CASES:
        setting = set_up(store, name, world)
        steps = []
        for number, batch in zip(range(STEPS), setting.loader.epoch(0), strict=False):
            report = setting.step(batch, stage, chances(setting.loader, number), torch.tensor(1e-3))
            values = dict(zip(report.names, report.values_N.tolist(), strict=True))
            steps.append({"values": values, "gradients": setting.optimizer.gradients.clone()})
        split = store.split("train")
        metrics = retrieval_metrics(setting.model, setting.bank, split, setting.config.score, world)
        scores = score_all(encode_split(setting.model, setting.bank, split, world))
        found.append({"steps": steps, "metrics": metrics, "frame": scores.frame_QV, "clip": scores.clip_QV})
    return found


def process(rank: int, port: int, store: Path, out: Path) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(rank)}
    with process_group(torch.device("cpu")) as world:
        torch.save(measure(Store.open(store), world), out / f"{world.rank}.pt")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    # An odd number of videos: the last process's share is filled up.
    return tiny_world(tmp_path_factory.mktemp("distributed") / "world", videos=15)


@pytest.fixture(scope="module")
def found(store: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[list, list, list]:
    """What one process finds, and what each of two finds."""
    out = tmp_path_factory.mktemp("found")
    multiprocessing.set_forkserver_preload(["holmes.training.run"])  # imports torch once for both
    mp.start_processes(process, (free_port(), store.path, out), nprocs=2, start_method="forkserver")
    two = [torch.load(out / f"{rank}.pt", weights_only=True) for rank in range(2)]
    return measure(store, ALONE), *two


@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{name}, stage {stage}" for name, stage in CASES])
def test_losses_and_gradients_of_two_halves_are_those_of_the_whole(found, case):
    one, first, second = (each[case]["steps"] for each in found)
    assert len(one) == STEPS
    for whole, *halves in zip(one, first, second, strict=True):
        for half in halves:
            assert half["values"] == pytest.approx(whole["values"], rel=1e-5, abs=1e-6)
            scale = whole["gradients"].abs().max()
            assert (half["gradients"] - whole["gradients"]).abs().max() <= 1e-5 * max(1, scale)
        assert torch.equal(halves[0]["gradients"], halves[1]["gradients"])
    assert one[0]["gradients"].abs().max() > 1e-2, "a gradient of nothing would prove nothing"


@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{name}, stage {stage}" for name, stage in CASES])
def test_evaluation_in_shares_is_evaluation(found, store, case):
    one, first, second = (each[case] for each in found)
    assert first["metrics"] == second["metrics"] == pytest.approx(one["metrics"])
    for branch in ("frame", "clip"):
        shares = torch.cat([first[branch], second[branch]])[: len(store.split("train").queries)]
        torch.testing.assert_close(shares, one[branch], rtol=0, atol=1e-5)


def test_torchrun_trains_as_one_process_does(store, tmp_path):
    """The whole command: only the hardest negatives and no dropout, so that chance does not differ."""
    changes = {"dropout": 0.0, "hard_pool": 1, "warm_up_epochs": 0, "epochs": 2, "held_out": 0.2}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]
    command += [str(free_port()), "-m", "holmes", "train", str(store.path), "--preset", "tvr", "--device"]
    command += ["cpu", "--out", str(tmp_path / "two"), "--seeds", "0,1", *set_options(**changes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ours, honest, 2 seeds, any video that fits") == 1, "one process prints for all"
    summary = read_json(tmp_path / "two" / "summary.json")
    assert summary["seeds"] == [0, 1] and len(summary["protocols"]["honest"]["runs"]) == 2
    for seed in range(2):
        (run,) = find_runs(tmp_path / "two" / f"honest-seed{seed}")
        shared, alone = (
            read_ranks(run.path / RANKS),
            evaluate_run(run, store, "test", torch.device("cpu")).seen,
        )
        assert shared.rank_Q.tolist() == alone.rank_Q.tolist() != alone.fitting_Q.tolist()
        assert shared.fitting_Q.tolist() == alone.fitting_Q.tolist(), "each process ranked its share"
        train(store, tiny_settings(**changes), tmp_path / "one", seed, options=QUIET)
        two, one = logged(tmp_path / "two" / f"honest-seed{seed}"), logged(tmp_path / "one")
        shutil.rmtree(tmp_path / "one")
        assert len(two) == len(one) == 2
        for ours, theirs in zip(two, one, strict=True):
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
