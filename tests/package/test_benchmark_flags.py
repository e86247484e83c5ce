"""Every flag of every benchmark and study is used by a test. What needs films or a server is run here."""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer

from benchmark_command import BENCHMARKS, STUDIES
from browser import chromium
from forked_children import forked, forked_children  # noqa: F401 - a fixture
from holmes.base import processes
from holmes.base.files import read_json, write_json
from holmes.cli.main import main
from holmes.config.schema import with_changes
from holmes.errors import HolmesError
from holmes.evidence.calibration import Calibration
from holmes.index.embedders.loading import load_embedder
from holmes.index.ingest.builder import build_index
from holmes.media.extraction import extract
from holmes.training.run import train
from holmes.worlds.rendered import RenderSettings, render_world
from index_fakes import FakeJoint, known_encoders
from tiny_runs import QUIET, TINY, tiny_settings, tiny_world

TESTS = Path(__file__).parents[1]
RUN_BY = ("package/test_benchmarks.py", "package/test_benchmark_flags.py", "serve/test_soak.py")
RUN_BY += ("cluster/test_cluster_ray.py",)
SMALL = RenderSettings(2, 10, captioned=1.0, seconds=(0.5, 1.0), size=(96, 72))
COMMANDS = {
    path.stem: path
    for path in sorted([*BENCHMARKS.glob("*.py"), *STUDIES.glob("*.py")])
    if '__name__ == "__main__"' in path.read_text()
    and path.stem != "hostile"  # has no flags: it takes four words, and soak.py and serve.py start it
}


@cache
def flags_used() -> dict[str, set[str]]:
    """The flags in the tests that run each benchmark, through `command`, as a module or as a file."""
    used: dict[str, set[str]] = {name: set() for name in COMMANDS}
    for file in RUN_BY:
        for test in ast.parse((TESTS / file).read_text()).body:
            nodes = [*ast.walk(test)]
            texts = {
                node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is str
            }
            runs = {text.removesuffix(".py") for text in texts if text.endswith(".py")}
            for node in nodes:
                if isinstance(node, ast.Import):
                    runs |= {alias.name for alias in node.names}
                elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "command":
                    runs |= {first.value for first in node.args[:1] if isinstance(first, ast.Constant)}
            for name in runs & used.keys():
                used[name] |= {text for text in texts if text.startswith("--")}
    return used


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_is_used_by_a_test(name: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The benchmark can be imported, says what it takes, and has no flag that no test runs."""
    monkeypatch.syspath_prepend(str(STUDIES))
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    flags: set[str] = set()
    format_help, run = argparse.ArgumentParser.format_help, typer.run

    def of_parser(parser: argparse.ArgumentParser) -> str:
        flags.update(text for action in parser._actions for text in action.option_strings[-1:])
        return format_help(parser)

    def of_function(main: Callable[..., None]) -> None:
        app = typer.Typer(add_completion=False)
        app.command()(main)
        options = (
            option for option in typer.main.get_command(app).params if option.param_type_name == "option"
        )
        flags.update(option.opts[-1] for option in options)
        run(main)

    monkeypatch.setattr(argparse.ArgumentParser, "format_help", of_parser)
    monkeypatch.setattr(typer, "run", of_function)
    before = {*sys.modules}
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(COMMANDS[name]), run_name="__main__")
    assert ended.value.code in (0, None) and "--help" in capsys.readouterr().out
    for each in {*sys.modules} - before:
        if any((folder / f"{each}.py").exists() for folder in (BENCHMARKS, STUDIES)):
            del sys.modules[each]
    assert flags - {"--help"} and not flags - {"--help"} - flags_used()[name]


@pytest.mark.parametrize("name", ["training", "evaluation", "encoders", "search", "baselines", "method"])
def test_a_gpu_that_is_not_there_is_refused(name: str, command: Any) -> None:
    with pytest.raises(HolmesError, match="sees no GPU"):
        command(name, "--device", "cuda")


class Calibrated(FakeJoint):
    """Needs no weights: loading the model that ships takes longer than all that is done with it here."""

    calibration = Calibration(
        model=FakeJoint.digest, candidates=20, frame_weight=0.4, clip_weight=0.6, temperature=0.1,
        score_temperature=0.05, score_offset=0.3, videos=8, queries=20,
    ).to_dict()  # fmt: skip

    def see(self, rows: np.ndarray) -> np.ndarray:
        return rows


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    known_encoders(monkeypatch, Calibrated())


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `holmes demo` leaves: rendered films, and an index of them."""
    folder = tmp_path_factory.mktemp("demo")
    world = render_world(folder / "videos", SMALL)
    with pytest.MonkeyPatch.context() as patch:
        known_encoders(patch, Calibrated())
        patch.setattr(processes, "subprocess", SimpleNamespace(Popen=forked, PIPE=subprocess.PIPE))
        build_index(folder / "index", [folder / "videos"], load_embedder("fake"))
    clips = folder / "clips"
    clips.mkdir()
    for video in world.of_group("test"):
        os.link(world.path(video), clips / f"{video.id}.mp4")
    told = {f"{video.id}.mp4": [] for video in world.videos}
    for caption in (*world.captions_of("train"), *world.captions_of("test")):
        told[f"{caption.video}.mp4"].append(caption.text)
    write_json(folder / "captions.json", told)
    write_json(clips / "captions.json", {name: told[name] for name in told if name.startswith("test")})
    return folder


def test_answers_and_moments_are_measured(command: Any, demo: Path, tmp_path: Path) -> None:
    answers = import_module("answers")
    answers.NOUNS, answers.RANDOM_SENTENCES = "dog cat", 5
    index, captions, found = demo / "index", demo / "captions.json", tmp_path / "found.json"
    figure = tmp_path / "figure.svg"
    command("answers", index, captions, "--demo", demo, "--json", found, "--figure", figure)
    rows = {row["figure"]: row["measured"] for row in read_json(found)["cross-validated"]}
    assert 0 <= rows["R@1"] <= 1 and rows["contradictions"] == 0 and figure.stat().st_size > 1000
    assert read_json(found)["demo"][1]["sentences"] == 5

    store = tiny_world(tmp_path / "store", videos=24)
    train(
        store.path, tiny_settings(epochs=1, warm_up_epochs=0, held_out=0.5), tmp_path / "run", options=QUIET
    )
    words = ["--store", tmp_path / "run", store.path, 2, "--demo", demo, "--clips", index, captions]
    command("moments", *words, "--part", "held", "--json", found)
    rows = {row["world"]: row for row in read_json(found)}
    assert {*rows} == {"store", "rendered", "films of 5 clips", "films of 90 clips"}
    assert all(0 <= row["IoU, shown"] <= 1 for row in rows.values())


def test_words_that_videos_say_are_looked_for(command: Any, demo: Path, tmp_path: Path) -> None:
    rng, letters = np.random.default_rng(0), list("bcdfgklmnprstvz")
    made = [" ".join("".join(rng.choice(letters, 6)) for _ in range(8)) for _ in range(4 * 14)]
    lines = [". ".join(made[at : at + 4]) + "." for at in range(0, len(made), 4)]
    (tmp_path / "text").write_text("\n".join(lines))
    command("heard_words", demo / "index", tmp_path / "text", "--json", tmp_path / "found.json")
    rows = {(row["query"], row["said by"]): row for row in read_json(tmp_path / "found.json")["rows"]}
    assert rows["five words in quotation marks", "some video"]["right"] == 1.0
    assert rows["a word in quotation marks", "some video"]["right"] == 1.0
    assert all(row["right"] == 0.0 for (_, by), row in rows.items() if by == "none")


@pytest.mark.usefixtures("forked_children")
def test_films_of_growing_length(
    command: Any, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_films = import_module("long_films")
    settings = {"seconds": (0.5, 1.0), "size": (96, 72)}
    monkeypatch.setattr(long_films, "RenderSettings", lambda **sizes: RenderSettings(**sizes, **settings))
    monkeypatch.setattr(long_films, "Pocket", Calibrated)
    monkeypatch.setattr(
        long_films, "extract", lambda films, folder, _, **how: extract(films, folder, "fake", **how)
    )
    np.savez(
        tmp_path / "fill.npz", features=np.ones((400, Calibrated.width)), lengths=[200, 200], ids=["a", "b"]
    )
    write_json(tmp_path / "splits.json", {"b": {"split": "test"}})
    words = ["--fill", tmp_path / "fill.npz", "--splits", tmp_path / "splits.json", "--rendered", 4]
    words += ["--films", 2, "--minutes", "1", "--splices", 1, "--once", "--half", "one"]
    words += ["--ways", "parts32,oracle"]
    command("long_films", demo / "clips", *words, "--work", tmp_path / "work", "--out", tmp_path)
    found = read_json(tmp_path / "long-films.json")
    assert [row["way"] for row in found["rows"]] == ["parts32", "oracle"] and len(found["losses"]) == 1


@pytest.mark.usefixtures("forked_children")
def test_extraction_is_timed(
    command: Any, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extraction = import_module("extraction")
    monkeypatch.setattr(extraction, "CODECS", {"H.264": "libx264"})
    monkeypatch.setattr(extraction, "HEIGHTS", {"360p": (64, 36)})

    def run(words: list[str], **how: Any) -> Any:
        """The script after `python -c`, in this process, which has imported everything."""
        monkeypatch.setattr(sys, "argv", words[2:])
        with redirect_stdout(io.StringIO()) as said:
            exec(words[2], {})
        return SimpleNamespace(stdout=said.getvalue())

    monkeypatch.setattr(extraction, "subprocess", SimpleNamespace(run=run))
    words = ["--work", tmp_path / "work", "--backbone", "fake", "--seconds", 1, "--times", 2]
    command("extraction", demo / "clips", *words, "--sizes", "360p", "--out", tmp_path)
    found = read_json(tmp_path / "extraction.json")
    assert found["clock"][0]["film"] == "360p-H.264" and found["processor"][0]["D"] > 0

    words = ["--work", tmp_path / "fast", "--model", "fake", "--keys", "1", "--out", tmp_path]
    command("fast_extraction", demo / "clips", *words)
    assert [row["way"] for row in read_json(tmp_path / "fast_extraction.json")] == ["all frames", "--fast"]


def test_starting_is_timed(command: Any, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    startup = import_module("startup")

    def started(words: list[str], **how: Any) -> Any:
        if words[1] == "-m":
            return in_a_copy(main, words[1:], **how)
        return subprocess.Popen([sys.executable, "-c", "pass"], **how)

    monkeypatch.setattr(startup, "subprocess", SimpleNamespace(Popen=started, PIPE=subprocess.PIPE))
    command("startup", demo / "index", "--times", 1, "--out", tmp_path)
    rows = {row["step"]: row["processor"] for row in read_json(tmp_path / "startup.json")}
    assert rows["holmes search, to its first line"] > rows["python alone"] > 0


def test_rows_of_the_method_and_recipes_are_trained(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_runs = import_module("many_runs")
    monkeypatch.setattr(many_runs, "ProcessPoolExecutor", lambda workers, _: ThreadPoolExecutor(workers))
    tiny_world(tmp_path / "planted-16", videos=24)
    words = ["--data", tmp_path, "--preset", "charades", "--videos", 16, "--epochs", 1, "--only", "planted"]
    words += ["--seeds", "0,1", "--device", "cpu", "--work", tmp_path, "--workers", 1, "--seconds", 1000]
    for change in ("warm_up_epochs=0", "width=8", "batch_videos=8", "gaussian_widths=none"):
        words += ["--set", change]
    command("method", *words, "--rows", "full,best clip", "--json", tmp_path / "method.json")
    command("recipes", *words, "--rows", "plus", "--json", tmp_path / "recipes.json", "--final")
    for name in ("method", "recipes"):
        rows = read_json(tmp_path / f"{name}.json")["rows"]
        assert rows and all(row["seeds"] == [0, 1] for row in rows), name


def test_the_study_of_uncertainty_writes_its_page(
    command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_world(tmp_path / "planted-16", videos=24, frames=128, clips=32)
    page = tmp_path / "docs" / "uncertainty.md"
    page.parent.mkdir()
    text = (BENCHMARKS.parent / "docs" / "uncertainty.md").read_text()
    page.write_text(text)
    words = ["--data", tmp_path, "--preset", "charades", "--videos", 16, "--epochs", 1, "--only", "planted"]
    words += ["--seeds", "0", "--device", "cpu", "--work", tmp_path, "--repeats", 20, "--largest", 100]
    for change in ("width=8", "batch_videos=8", "gaussian_widths=none", "held_out=0.4"):
        words += ["--set", change]
    command("uncertainty", *words, "--json", tmp_path / "found.json", "--docs", page)
    (found,) = read_json(tmp_path / "found.json")["found"]
    assert [row["videos"] for row in found["galleries"][0]] == [100]
    assert page.read_text() != text and (page.parent / "figures" / "confidence-planted.svg").exists()
    capsys.readouterr()
    with pytest.raises(SystemExit, match="does not exist; --docs takes the page"):
        command("uncertainty", *words, "--docs", tmp_path / "missing.md")


@pytest.mark.usefixtures("forked_children")
def test_queries_of_more_than_a_sentence(
    command: Any, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = import_module("queries")
    monkeypatch.setattr(queries, "render_world", lambda path, _, **how: render_world(path, SMALL))
    settings = queries.settings
    monkeypatch.setattr(
        queries, "settings", lambda: with_changes(settings(), TINY | {"epochs": 1, "held_out": 0.5})
    )
    features = partial(extract, backbone="fake")
    monkeypatch.setattr(queries, "extract", lambda films, folder, **how: features(films, folder, **how))
    monkeypatch.setattr(queries, "load_embedder", lambda *names: load_embedder("fake"))
    words = ["--work", tmp_path / "work", "--videos", 10, "--model", "pocket", "--only-not"]
    command("queries", *words, "--json", tmp_path / "found.json")
    rows = read_json(tmp_path / "found.json")
    assert [row["query"] for row in rows] == ["the sentence alone", "with 'but not …'", "--not"]


def in_a_copy(work: Callable[[], object], words: list[str], **how: Any) -> subprocess.Popen[bytes]:
    """What a Python process would do, in a copy of this one, which has imported everything."""

    def begin() -> None:
        os.closerange(3, 10_000)
        sys.argv, sys.stdout, code = words[1:], os.fdopen(1, "w"), 1
        try:
            work()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        finally:
            sys.stdout.flush()
            os._exit(code)

    return subprocess.Popen(words, preexec_fn=begin, **how)


def test_a_server_is_asked_by_many(
    command: Any, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    serve, misbehave = import_module("serve"), import_module("hostile").main

    def started(words: list[str], **how: Any) -> Any:
        if "--serve" in words:
            assert words[2::2] == ["--serve", "--port", "--batch"]
            return in_a_copy(partial(command, "serve", *words[2:]), words, **how)
        port, seconds, who, count = words[-4:]
        return in_a_copy(
            lambda: asyncio.run(misbehave(int(port), float(seconds), who, int(count))), words, **how
        )

    def answered(words: list[str], **how: Any) -> Any:
        return SimpleNamespace(stdout=started(words, stdout=subprocess.PIPE).communicate()[0])

    monkeypatch.setattr(serve, "subprocess", SimpleNamespace(Popen=started, run=answered))
    monkeypatch.setattr(serve, "PEOPLE", 2)
    monkeypatch.setattr(serve, "HOSTILE", 7)
    words = ["--videos", 20, "--clients", "1,2", "--index", tmp_path / "index", "--out", tmp_path]
    command("serve", *words, "--seconds", 0.1, "--demo", demo / "index")
    rows = read_json(tmp_path / "serve.json")["rows"]
    assert len(rows) == 8 and all(row["answers"] > 0 and row["lost"] == 0 for row in rows)
    with suppress(SystemExit):  # the budget is that of an idle machine
        command("serve", "--demo", demo / "index", "--hostile", "--seconds", 0.5, "--out", tmp_path)
    rows = read_json(tmp_path / "serve_hostile.json")["rows"]
    assert [row["who misbehave"] for row in rows] == [0, 7, 0, 7] and sum(row["answers"] for row in rows)
    with pytest.raises(SystemExit, match="needs --demo"):
        command("serve", "--hostile")


@pytest.mark.skipif(chromium() is None, reason="no chromium")
def test_scrolling_is_timed(command: Any, demo: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("library_scroll"), "SPEEDS", (2400,))
    command("library_scroll", demo / "videos", "--videos", 100, "--seconds", 0.3)
    assert "2400" in capsys.readouterr().out
