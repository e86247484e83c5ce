"""The whole reproduction, top to bottom: unpack, pack, check, train, time, write. Read this file first.

Every step is skipped where its result is there already, so the same command continues after a kill.

    RESULTS/stores/NAME     the packed features          RESULTS/index.html       the page
    RESULTS/runs/NAME       one training each            RESULTS/tables/*.tex     the tables as LaTeX
    RESULTS/checkpoints     figures of published ones    RESULTS/provenance.json  digests, versions, commands
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from holmes.base.locks import hold
from holmes.base.manifests import FileFormat
from holmes.base.progress import progress_bar
from holmes.data.pack import Source, pack
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.evaluation.grid import Grid
from holmes.reproduce.checkpoints import evaluate_released
from holmes.reproduce.display import PlanDisplay
from holmes.reproduce.efficiency import device_name, measure
from holmes.reproduce.finding import Findings, FoundCollection
from holmes.reproduce.page import REPORTS, write_results
from holmes.reproduce.plan import STORES, PlannedRun, Request
from holmes.reproduce.tables import Reproduction
from holmes.reproduce.trees import ZipTree
from holmes.training.run import RunOptions
from holmes.training.side_by_side import QueuedRun, runs_that_fit, train_all

MARK = "reproduce.json"
FORMAT = FileFormat("holmes-reproduce", 1, "a reproduction", "give a new --out")
LOCK, UNPACKED, CHECKPOINTS = "lock", "unpacked", "checkpoints"
Say = Callable[[str], None]


def reproduce(
    request: Request, findings: Findings, plan: list[PlannedRun], say: Say, progress: bool = True
) -> dict[str, Grid]:
    """Do what is left of the plan and write the results; the tables by name."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise HolmesError(
            "'holmes reproduce' trains each run on one device; leave out torchrun, or use --jobs."
        )
    claim(request.out)
    lock = hold(request.out / LOCK, f"{request.out} is being written by another process; wait for it.")
    try:
        wanted = {run.collection for run in plan}
        stores = {
            name: packed_store(found, request.out, say, progress)
            for name, found in findings.usable.items()
            if name in wanted
        }
        for name, store in stores.items():
            findings.collections[name] = with_widths(findings.collections[name], store, say)
        outcome = Reproduction(request, plan)
        outcome.released = evaluate_released(
            findings.checkpoints, stores, request.out / CHECKPOINTS, request.device, say
        )
        write = partial(write_results, outcome, findings, stores, device_name(request.device))
        train_plan(outcome, findings, stores, write, progress)
        measure_times(outcome, stores, say)
        if "figures" in request.tables:
            write_reports(outcome, say)
        return write()
    finally:
        lock.release()


def claim(out: Path) -> None:
    """Refuse a folder with other files: results go into a new or empty folder, or into one that has some."""
    others = sorted(path.name for path in out.glob("[!.]*")) if out.is_dir() else []
    if not others:
        FORMAT.write(out / MARK, {})
    elif MARK not in others:
        raise HolmesError(
            f"{out} is not empty and contains no results of 'holmes reproduce' (it has {others[0]!r}); give "
            "a new folder with --out."
        )


def packed_store(found: FoundCollection, out: Path, say: Say, progress: bool) -> Store:
    """The collection as a store: unpacked if need be, packed once, then only opened."""
    target = out / STORES / found.about.name
    unpacked = out / UNPACKED / found.about.name
    if not (target / "store.json").exists():
        folder = found.tree.where
        if isinstance(found.tree, ZipTree):
            folder, names = unpacked, found.wanted()
            total = sum(found.tree.sizes[name] for name in names) >> 20
            with progress_bar(f"unpacking {found.tree.where.name}, MiB", total, progress=progress) as advance:
                found.tree.unpack(names, unpacked, in_mebibytes(advance))
        say(f"packing {found.about.title} from {found.tree.where} into {target}")
        source = Source(folder, found.about.name, found.visual, found.text)
        pack(source, target, progress=progress)
    shutil.rmtree(unpacked, ignore_errors=True)  # the store has all that is used
    with suppress(OSError):
        unpacked.parent.rmdir()
    return Store.open(target)


def with_widths(found: FoundCollection, store: Store, say: Say) -> FoundCollection:
    """The collection with remarks on the widths that only its store tells: of text, and of a zip file."""
    about, remarks = found.about, [*found.remarks]
    for what, ours, usual in (
        ("video", store.info.video_width, about.video_width),
        ("text", store.info.text_width, about.text_width),
    ):
        remark = f"{what} features are {ours} wide, the field's {usual}"
        if ours != usual and remark not in remarks:
            remarks.append(remark)
            say(f"{about.title}: {remark}")
    return replace(found, remarks=tuple(remarks))


def in_mebibytes(advance: Callable[[int], None]) -> Callable[[int], None]:
    """Bytes in, whole mebibytes out."""
    rest = 0

    def note(count: int) -> None:
        nonlocal rest
        whole, rest = divmod(rest + count, 1 << 20)
        if whole:
            advance(whole)

    return note


def train_plan(
    outcome: Reproduction,
    findings: Findings,
    stores: dict[str, Store],
    write: Callable[[], object],
    progress: bool,
) -> None:
    """Train what is left, first the runs of the tables, then the timed ones, which run alone.

    The page is written before the first run and after each: it shows all that is done.
    """
    request = outcome.request
    options = RunOptions(request.device, progress=progress)
    remarks = {name: found.remarks for name, found in findings.collections.items()}
    timed = [run for run in outcome.plan if run.tables == ("efficiency",)]
    for runs, jobs in (([run for run in outcome.plan if run not in timed], request.jobs), (timed, 1)):
        queue = [
            QueuedRun(
                run.name, stores[run.collection], run.config, run.folder(request.out), run.seed, run.protocol
            )
            for run in runs
        ]
        left = [run for run in runs if not run.done(request.out)]
        at_once = jobs or runs_that_fit([(job.store, job.config) for job in queue], options.device)
        outcome.note_done()
        if left:
            write()

        def ended() -> None:
            outcome.note_done()
            write()

        with PlanDisplay(left, remarks, [*request.settings], at_once, progress, ended) as display:
            results = train_all(queue, options, at_once, display=display)
        outcome.results |= {run.name: result for run, result in zip(runs, results, strict=True)}


def measure_times(outcome: Reproduction, stores: dict[str, Store], say: Say) -> None:
    for run in outcome.plan:
        if "efficiency" in run.tables:
            say(f"timing {run.preset}")
            outcome.times[run.preset] = measure(
                run.folder(outcome.request.out), stores[run.collection], outcome.request.device
            )


def write_reports(outcome: Reproduction, say: Say) -> None:
    """A page of figures for the first seed of every main run, as `holmes report` writes it."""
    from holmes.report.figures.page import write_page
    from holmes.report.figures.report import report_sections
    from holmes.report.run import one_run, report_data

    request = outcome.request
    for run in outcome.plan:
        page = request.out / REPORTS / f"{run.name}.html"
        if "figures" in run.tables and run.seed == request.seeds[0] and not page.exists():
            folder = one_run(run.folder(request.out))
            data = report_data([folder], None, "test", None, None, request.device, say)
            write_page(page, data.title, data.lead, report_sections(data))
