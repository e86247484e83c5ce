"""The public names: found by `dir`, known to type checkers without `Any`, and of the types they promise."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import holmes
from holmes.base.files import read_json
from holmes.base.manifests import MARKS
from holmes.errors import HolmesError
from holmes.index.embedders import loading as embedders
from holmes.training.logbook import read_metrics
from index_fakes import FILMS, FakeJoint, write_features
from tiny_runs import QUIET, tiny_settings, tiny_world

SOURCE = Path(__file__).parents[2] / "src"
ASKED = ("train", "evaluate", "build_index", "open_index", "load_checkpoint", "HolmesError")


def test_a_type_checker_reads_what_users_write() -> None:
    """mypy checks it with everything else, in `make check` and `make test`."""
    settings = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["tool"]["mypy"]
    name = "tests/package/public_types.py"
    assert name in settings["files"] and settings["strict"] and (SOURCE.parent / name).exists()
    (own,) = (each for each in settings["overrides"] if each["module"] == ["public_types"])
    assert own == {"module": ["public_types"], "disallow_any_expr": True}


def public_hints() -> Iterator[tuple[str, str]]:
    """Every annotation that a user of a public class meets, by its place."""
    for name in holmes.__all__:
        kind = getattr(holmes, name)
        if not inspect.isclass(kind):
            continue
        tree = ast.parse(Path(inspect.getfile(kind)).read_text())
        (body,) = (n.body for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name)
        for node in body:
            if isinstance(node, ast.AnnAssign):
                yield f"{name}.{ast.unparse(node.target)}", ast.unparse(node.annotation)
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                given = [*node.args.args[1:], *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
                hints = [None if each is None else each.annotation for each in given]
                hints = [hint for each, hint in zip(given, hints, strict=True) if each is not None]
                for hint in (*hints, node.returns):
                    yield f"{name}.{node.name}", "nothing" if hint is None else ast.unparse(hint)


def test_no_public_annotation_says_any() -> None:
    hints = list(public_hints())
    assert len(hints) > 150
    vague = {"Any", "dict", "list", "tuple", "nothing"}
    for place, hint in hints:
        assert "Any" not in hint and hint not in vague, f"{place}: {hint}"


def test_every_result_is_plain_json_on_request() -> None:
    results = (
        "Answer BuildSummary CalibrationSummary ComparisonReport Epoch Evaluation Hit IndexDescription "
        "Moment QueryTable RunReport SyncSummary TrainingResult"
    )
    for name in results.split():
        assert callable(getattr(holmes, name).to_dict), name


def test_every_name_is_listed_and_loads() -> None:
    assert set(ASKED) <= set(holmes.__all__) <= set(dir(holmes))
    for name in holmes.__all__:
        assert callable(getattr(holmes, name)), name
    assert holmes.HolmesError is HolmesError
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = holmes.trian


def test_the_stub_lists_the_names_that_it_imports() -> None:
    """`__init__.py` reads the stub, so the names and their modules are written once."""
    stub = ast.parse((SOURCE / "holmes" / "__init__.pyi").read_text())
    (listed,) = (node.value for node in stub.body if isinstance(node, ast.Assign))
    assert ast.literal_eval(listed) == holmes.__all__
    for name, module in holmes._MODULES.items():
        assert getattr(importlib.import_module(module), name) is getattr(holmes, name)


def test_importing_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, holmes; print(sorted({'torch', 'numpy'} & set(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, holmes.TrainingResult, list[holmes.Epoch]]:
    folder = tmp_path_factory.mktemp("trained")
    epochs: list[holmes.Epoch] = []
    store = tiny_world(folder / "store")
    result = holmes.train(
        store,
        tiny_settings(epochs=2, warm_up_epochs=1),
        folder / "run",
        options=QUIET,
        on_epoch=epochs.append,
    )
    return folder, result, epochs


def test_training_answers_with_records(trained) -> None:
    folder, result, epochs = trained
    written = read_json(folder / "run" / "result.json")
    told = {name: value for name, value in written.items() if name not in MARKS}
    assert {"run": str(folder / "run"), **told} == result.to_dict()
    assert result.seed == 0
    assert [epoch.to_dict() for epoch in epochs] == read_metrics(folder / "run")
    assert [epoch.stage for epoch in epochs] == [1, 2]
    again = holmes.train(
        folder / "store", tiny_settings(epochs=2, warm_up_epochs=1), folder / "run", options=QUIET
    )
    assert again == result, "a finished run gives its result again"


def test_evaluation_is_what_the_command_writes(trained, tmp_path: Path, monkeypatch, capsys) -> None:
    from holmes.cli import main

    folder, result, _ = trained
    found = holmes.evaluate(folder / "run", device="cpu")
    monkeypatch.setattr(
        sys,
        "argv",
        ["holmes", "evaluate", str(folder / "run"), "--device", "cpu", "--json", str(tmp_path / "f")],
    )
    with pytest.raises(SystemExit):
        main.main()
    assert found.to_dict() == read_json(tmp_path / "f")
    assert found.metrics == pytest.approx(result.metrics)
    assert found.summary["honest"]["SumR"].mean == pytest.approx(result.metrics["SumR"])
    (report,) = found.reports
    assert report.partition is not None and report.localisation is not None
    assert sum(group.queries for group in report.by["kind"].values()) == report.queries


def test_queries_are_a_table(trained) -> None:
    folder, result, _ = trained
    table = holmes.queries(folder / "run", device="cpu")
    first = [rank == 1 for rank in table.columns["rank"]]
    assert 100 * sum(first) / len(table) == pytest.approx(result.metrics["R@1"])
    assert table.to_dict().keys() == table.columns.keys()


def test_a_checkpoint_opens_by_its_run_or_its_folder(trained) -> None:
    folder, _, _ = trained
    by_run, by_folder = (holmes.load_checkpoint(path) for path in (folder / "run", folder / "run" / "best"))
    assert by_run.digest == by_folder.digest and not by_run.model.training
    with pytest.raises(HolmesError, match="holds no checkpoint"):
        holmes.load_checkpoint(folder)


def test_an_index_is_built_and_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []

    def load(name: str, device: str = "auto") -> FakeJoint:
        devices.append(device)
        return FakeJoint()

    monkeypatch.setattr(embedders, "load_visual", load)
    features = write_features(tmp_path / "features", FILMS)
    summary = holmes.build_index(tmp_path / "index", features.path, "fake", device="cpu")
    assert summary.added == len(FILMS) and summary.failures == ()
    assert json.loads(json.dumps(summary.to_dict()))["added"] == len(FILMS)
    answer = holmes.open_index(tmp_path / "index", device="cpu").search("dog runs beach")
    assert Path(answer.hits[0].video).stem == "coast"
    assert json.loads(json.dumps(answer.to_dict()))["hits"][0]["video"] == answer.hits[0].video
    assert set(devices) == {"cpu"}, "the device holds for the encoder too"
