"""A training run, from a store to a checkpoint. Read this file first.

    splits → features on the device → model → epochs of steps → evaluation → best checkpoint → test once

Run folder: `run.json` what the run is, `metrics.jsonl` what happened, `state*` where it stands, `best/` the
best checkpoint, `result.json` the final figures, `ranks.npz` where every query's video came. The same
command, run again, continues where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from holmes.base.devices import choose_device
from holmes.base.parallel import World, process_group
from holmes.base.validation import Count, build
from holmes.config.schema import HolmesConfig
from holmes.data.bank import FeatureBank
from holmes.data.check import FeatureCheck
from holmes.data.loader import BatchLoader
from holmes.data.store import Store
from holmes.encoders.build import build_model
from holmes.encoders.checkpoint import load_checkpoint, save_checkpoint
from holmes.encoders.hub import local_model
from holmes.encoders.model import has_kernels
from holmes.encoders.released import open_checkpoint
from holmes.errors import HolmesError
from holmes.evaluation.intervals import save_ranks
from holmes.evaluation.recall import both_ranks, fits_of, recall, retrieval_metrics
from holmes.results import TrainingResult
from holmes.training.calibrate import calibrate
from holmes.training.display import TrainingDisplay
from holmes.training.logbook import Logbook, epoch_entry
from holmes.training.optimizer import FlatAdam, learning_rates
from holmes.training.protocol import Protocol, Splits, choose_splits, parse_protocol
from holmes.training.resume import (
    RANKS,
    RESULT,
    RUN,
    TRAINED_BY,
    Progress,
    StateKeeper,
    claim_run,
    read_result,
    read_run,
    refuse_foreign_folder,
    seed_epoch,
    sole_owner,
    trained_by,
    write_result,
)
from holmes.training.setup import build_objective, describe, extras_of, fit_to_store, stage_of
from holmes.training.step import GraphedStep, TrainStep, what_broke

OnEpoch = Callable[[dict[str, Any]], None]  # called with each epoch's line of `metrics.jsonl`
LARGEST_SEED = 2**31  # seeds are multiplied and added to, and generators take 64 bits


@dataclass(frozen=True)
class RunOptions:
    """How to run, as opposed to what: none of these changes the result beyond rounding."""

    device: str = "auto"
    kernels: bool = True  # fused ones on a GPU, in place of plain torch
    tensorboard: bool = False
    progress: bool = True


def train(
    store: Store | Path | str,
    config: HolmesConfig,
    out: Path | str,
    seed: int = 0,
    protocol: Protocol | str = Protocol.HONEST,
    options: RunOptions = RunOptions(),
    on_epoch: OnEpoch | None = None,
    start: Path | str | None = None,
) -> TrainingResult:
    """Train, select the best epoch by the protocol, and return its figures on the test split.

    `on_epoch` is called after every epoch with its line of `metrics.jsonl`: losses, recalls on the selecting
    split, shares of kinds, speed. An exception that it raises stops the run, which can be continued.
    `start` is a checkpoint, a run or hub:NAME whose weights training starts from.
    """
    if not isinstance(config, HolmesConfig):
        raise HolmesError(f"config must be settings such as holmes.preset('small'), not {config!r}.")
    if not 0 <= seed < LARGEST_SEED:
        raise HolmesError(f"seed {seed} is not between 0 and {LARGEST_SEED - 1}.")
    protocol = parse_protocol(protocol)
    store = store if isinstance(store, Store) else Store.open(store)
    out = Path(out)
    begun = None if start is None else open_checkpoint(local_model(start))
    if begun is not None:
        config = replace(config, model=begun.config.model)
    config = fit_to_store(config, store)
    if begun is not None and config.model != begun.config.model:
        raise HolmesError(
            f"{start} was trained on features of width {begun.config.model.video_width} and "
            f"{begun.config.model.text_width}; {store.path} has {store.info.video_width} and "
            f"{store.info.text_width}."
        )
    device = choose_device(options.device)
    splits = choose_splits(store, protocol, config.training.held_out, seed)
    with process_group(device) as world, sole_owner(out) if world.leads else nullcontext():
        if world.leads:
            refuse_foreign_folder(out)
            data = {"store": store.info.digest, "protocol": protocol.value}
            data |= {} if begun is None else {"start": begun.digest}
            claim_run(out, config, seed, data, store.path)
        if (out / RESULT).exists():
            return read_result(out / RESULT)
        weights = None if begun is None else begun.model.state_dict()
        run = Run(store, splits, config, out, seed, world, device, options, weights)
        run.go(on_epoch)
        return run.finish(protocol)


class Run:
    """Everything a run holds while it is under way."""

    def __init__(
        self,
        store: Store,
        splits: Splits,
        config: HolmesConfig,
        out: Path,
        seed: int,
        world: World,
        device: torch.device,
        options: RunOptions,
        start: dict[str, torch.Tensor] | None = None,
    ) -> None:
        self.splits, self.config, self.out, self.seed = splits, config, out, seed
        self.world, self.device, self.options = world, device, options
        self.features = FeatureCheck(store) if world.leads else None
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")
            torch.cuda.reset_peak_memory_stats(device)
        used = [splits.fit, splits.select, splits.report, *([splits.calibrate] if splits.calibrate else [])]
        self.bank = FeatureBank.of_splits(store, device, used)
        training = config.training
        self.loader = BatchLoader(
            self.bank,
            splits.fit,
            training.batch_videos,
            seed,
            training.epochs,
            world.rank,
            world.size,
        )
        torch.manual_seed(seed)
        self.model = build_model(config.model).to(device).train()
        if start is not None:
            self.model.load_state_dict(start)
        self.optimizer = FlatAdam(self.model, training.weight_decay, training.gradient_norm)
        kernels = options.kernels and has_kernels(self.model, device)
        step = TrainStep(self.model, build_objective(config), self.optimizer, world, kernels)
        recorded = device.type == "cuda" and world.size == 1
        self.step = GraphedStep(step) if recorded else step
        self.best: dict[str, torch.Tensor] | None = None  # not yet on disk
        self.keeper = StateKeeper(out)
        self.progress = self.resume()
        how = ", ".join(["fused kernels"] * kernels + ["recorded"] * recorded) or "plain torch"
        self.says = describe(config, self.bank, splits.fit, self.model, device, world, how)

    def go(self, on_epoch: OnEpoch | None = None) -> None:
        """Epochs until the last one, or until patience runs out."""
        training, progress = self.config.training, self.progress
        logbook = (
            Logbook(self.out, progress.epochs_done, self.options.tensorboard) if self.world.leads else None
        )
        steps = self.loader.steps_per_epoch
        with TrainingDisplay(
            steps * training.epochs, progress.steps_done, self.options.progress and self.world.leads
        ) as display:
            display.say(self.says)
            if progress.epochs_done:
                display.say(f"resuming after epoch {progress.epochs_done}")
            while progress.epochs_done < training.epochs and not progress.stopped_early:
                entry = self.one_epoch(progress.epochs_done, display)
                self.note_progress(entry["select"]["SumR"])
                display.epoch(entry, training.epochs, progress.best_sum, progress.best_epoch)
                if logbook:
                    self.write_down(entry, logbook)
                if on_epoch is not None and self.world.leads:
                    on_epoch(entry)
        if logbook:
            logbook.close()

    def one_epoch(self, epoch: int, display: TrainingDisplay) -> dict[str, Any]:
        """All steps of an epoch and an evaluation: the epoch's entry in the logbook."""
        entry = self.train_epoch(epoch, display)
        display.doing(f"epoch {epoch + 1}, evaluating")
        start = time.perf_counter()
        entry["select"] = retrieval_metrics(
            self.model, self.bank, self.splits.select, self.config.score, self.world
        )
        entry["speed"]["evaluate_seconds"] = time.perf_counter() - start
        if self.device.type == "cuda":
            entry["speed"]["peak_gib"] = torch.cuda.max_memory_allocated(self.device) / 2**30
        return entry

    def train_epoch(self, epoch: int, display: TrainingDisplay) -> dict[str, Any]:
        """All steps of an epoch; the device is asked for results only at the end."""
        training = self.config.training
        stage = stage_of(epoch, training.warm_up_epochs)
        seed_epoch(self.seed, epoch, self.world.rank)
        shared = torch.Generator(self.device).manual_seed(self.seed * 100_003 + epoch)
        shape = (self.loader.query_capacity * self.world.size, self.loader.videos_per_rank * self.world.size)
        rates = learning_rates(training, epoch, self.loader.steps_per_epoch).to(self.device)
        display.doing(f"epoch {epoch + 1}, stage {stage.value}")
        start = time.perf_counter()
        reports = []
        for step, batch in enumerate(self.loader.epoch(epoch)):
            uniform_QV = torch.rand(shape, generator=shared, device=self.device)
            reports.append(self.step(batch, stage, uniform_QV, rates[step]))
            display.advance()
        values_SN = torch.stack([report.values_N for report in reports]).cpu()
        seconds = time.perf_counter() - start
        names = reports[0].names
        self.refuse_nonfinite(values_SN, names, epoch)
        return epoch_entry(epoch, stage, values_SN, names, rates[-1].item(), seconds)

    def refuse_nonfinite(self, values_SN: torch.Tensor, names: tuple[str, ...], epoch: int) -> None:
        """Stop before a broken epoch is saved over a good one."""
        what = what_broke(values_SN, names, self.optimizer.values, epoch)
        if what is None:
            return
        if self.world.leads:
            self.save_best()
        good = self.out / "best" if (self.out / "best").exists() else "none was saved yet"
        raise HolmesError(f"{what}; last good checkpoint: {good}. Try a lower learning rate or another seed.")

    def note_progress(self, found: float) -> None:
        progress, training = self.progress, self.config.training
        progress.epochs_done += 1
        if found > progress.best_sum:
            progress.best_sum, progress.best_epoch = found, progress.epochs_done
            self.best = {name: value.clone() for name, value in self.model.state_dict().items()}
        progress.steps_done += self.loader.steps_per_epoch
        waited = progress.epochs_done - progress.best_epoch
        progress.stopped_early = bool(training.patience) and waited > training.patience

    def write_down(self, entry: dict[str, Any], logbook: Logbook) -> None:
        """The epoch in the logbook, then, when it is time, the state that counts on it."""
        progress = self.progress
        last = progress.epochs_done == self.config.training.epochs or progress.stopped_early
        if self.features:
            self.features.require()  # nothing that was learnt from damaged features is kept
        try:
            logbook.write(entry)
            if last or self.keeper.due():
                self.save_best()
                tensors = {"values": self.optimizer.values, **self.optimizer.state_dict()}
                self.keeper.save(progress, tensors)
        except OSError as error:
            raise HolmesError(
                f"cannot write to {self.out}: {error.strerror}; earlier saves are intact. "
                "Fix this and run the same command again."
            ) from None

    def save_best(self) -> None:
        """The best checkpoint, if it is better than the one on disk."""
        if self.best is None:
            return
        current = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.best)
        extras = extras_of(self.progress, self.bank.store, self.splits.fit)
        extras[TRAINED_BY] = trained_by(read_run(self.out / RUN))
        save_checkpoint(self.out / "best", self.model, self.config, extras)
        self.model.load_state_dict(current)
        self.best = None

    def resume(self) -> Progress:
        saved = self.keeper.load()
        if saved is None:
            return Progress()
        progress, tensors = saved
        try:
            self.optimizer.values.copy_(tensors["values"])
            self.optimizer.load_state_dict(tensors)
        except (KeyError, RuntimeError):
            raise HolmesError(
                f"the state in {self.out} belongs to another model; use a new --out folder."
            ) from None
        return progress

    def finish(self, protocol: Protocol) -> TrainingResult:
        """Test once, with the best checkpoint, and calibrate it."""
        if self.features:
            self.features.require()
        if self.world.size > 1:
            torch.distributed.barrier()
        checkpoint = load_checkpoint(self.out / "best", str(self.device))
        tested = (checkpoint.model, self.bank, self.splits.report, self.config.score, self.world)
        fits = fits_of(self.bank.store.also_fits, self.splits.report, self.device)
        ranks_Q, fitting_Q = both_ranks(*tested, fits)
        calibrated = None
        if self.world.leads:
            fitting = None if fitting_Q is None else fitting_Q.cpu().numpy()
            save_ranks(self.out / RANKS, ranks_Q.cpu().numpy(), self.splits.report.owner, fitting)
            held = self.splits.calibrate
            fitted = None if held is None else calibrate(self.out / "best", checkpoint, self.bank, held)
            calibrated = fitted is not None
        result = TrainingResult(
            run=str(self.out),
            protocol=protocol.value,
            seed=self.seed,
            epoch=build(Count, checkpoint.extras["epoch"]),
            epochs_done=self.progress.epochs_done,
            split=self.splits.report.name,
            metrics=recall(ranks_Q),
            calibrated=calibrated,
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
        )
        if self.world.leads:
            write_result(self.out, result)
        return result
