"""Every command of README.md and docs/ is run here on tiny data, or is listed with the reason why not."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from colour_films import Library, see_colours, three_films
from holmes.cli import main
from holmes.data.export import export_store
from holmes.index.answer.searcher import open_single_index
from holmes.training.run import train
from own_names import names_restored
from tiny_runs import QUIET, TINY, tiny_settings, tiny_world
from undrawn import undrawn  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[2]
GENERATED = ("log.md", "commands.md")  # the log tells of the past; the other page has a test of its own
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"    ((?:holmes|make|pip|python|ray|torchrun) (?!: ).*)")
ON_RAY = "needs a cluster; tests/cluster/test_cluster_ray.py runs one on this machine"

# Not run here: command, and why.
ELSEWHERE = {
    "make setup": "makes the environment in which the tests run",
    "make check": "runs the tests themselves",
    "make test": "runs the tests themselves",
    "make docs": "tests/package/test_site.py builds the site",
    "make demo": "tests/cli/test_demo.py runs the demonstration on a smaller world",
    "holmes demo": "tests/cli/test_demo.py runs the demonstration on a smaller world",
    "pip install '.[video]'": "installs packages; tests/package/test_wheel.py installs the package itself",
    "pip install '.[serve]'": "installs packages",
    'holmes search INDEX "someone says the engine would not start"': (
        "needs words; tests/heard/test_words_in_an_index.py asks"
    ),
    "pip install '.[serve,cluster]'": "installs packages",
    "holmes serve INDEX": "does not end; tests/serve/test_serve_cli.py starts it and asks",
    'holmes searches add INDEX "a dog runs on the beach"': "tests/index/test_saved_searches.py saves some",
    "holmes serve FILMS=INDEX HOME=INDEX2": "does not end; tests/serve/test_serve_libraries.py asks both",
    "holmes serve INDEX --token TOKEN --name films.lan --proxy 127.0.0.1 --uploads FOLDER": (
        "does not end; tests/serve/test_serve_proxy.py asks it through a proxy"
    ),
    "holmes serve INDEX --uploads FOLDER": "does not end; tests/serve/test_serve_uploads.py sends files",
    "holmes mcp INDEX": "does not end; tests/serve/test_agents.py starts it and asks",
    "holmes index sync INDEX FOLDER --watch": "does not end; tests/index/test_index_library.py looks twice",
    "torchrun --nproc-per-node 4 -m holmes train STORE --preset tvr --out RUN": (
        "needs several devices; tests/training/test_training_distributed.py runs it with two processes"
    ),
    **{
        f"torchrun --nnodes 2 --node-rank {rank} --nproc-per-node 4 --master-addr FIRST --master-port 29500 "
        "-m holmes train STORE --preset tvr --out RUN": "needs several machines"
        for rank in (0, 1)
    },
    "holmes tune STORE --preset charades_plus --out FOLDER --trials 60 --minutes 20 --seeds 0,1,2": (
        "tests/training/test_tuning.py searches with tiny settings"
    ),
    "holmes train STORE --preset FOLDER/best.json --out RUN": (
        "needs a search; tests/config/test_search_space.py reads such a file"
    ),
    "holmes evaluate --scores scores.npz STORE": (
        "needs scores of other code; tests/evaluation/test_score_files.py has some"
    ),
    "python benchmarks/baselines.py --data DATA --seeds 0,1,2,3,4,5,6,7 --jobs 0 --work FOLDER "
    "--json found.json": "takes a GPU; tests/package/test_benchmarks.py runs it small",
    "python benchmarks/answers.py INDEX CAPTIONS.json --figure docs/figures/not-here.svg": (
        "needs captioned clips and takes minutes; tests/index/test_no_contradiction.py checks answers"
    ),
    "python benchmarks/long_films.py CLIPS --fill clips.npz --splits clips.json --once --half one --splices "
    "1 --ways parts": "takes minutes; tests/package/test_benchmarks.py asks two small films",
    "holmes evaluate PUBLISHED.ckpt STORE": "needs a published file; tests/encoders/test_released.py has one",
    "holmes index build INDEX VIDEOS… --model RUN": "tests/cli/test_demo.py indexes with a trained run",
    **dict.fromkeys(
        (
            "holmes index build INDEX VIDEOS… --model open_clip:ViT-B-16-SigLIP2",
            "holmes extract VIDEOS… --out FEATURES --model clip-vit-base-patch32",
            "holmes data caption FEATURES CAPTIONS STORE --text clip-vit-base-patch32",
        ),
        "needs a download; tests/media/test_encoder_libraries.py has tiny models of every library",
    ),
    **dict.fromkeys(
        (
            "holmes train STORE --preset clip_b32 --out RUN",
            "holmes index build INDEX FEATURES --model RUN",
            "holmes try VIDEOS… --captions CAPTIONS --model clip-vit-base-patch32 --preset clip_b32 "
            "--out FOLDER",
            "holmes index rebuild INDEX --model siglip2-base-patch16-224",
            "holmes index compare INDEX.before INDEX CAPTIONS",
        ),
        "needs a download; tests/index/test_index_models.py does it with a function of its own",
    ),
    **dict.fromkeys(
        (
            "holmes search INDEX --image photo.jpg",
            'holmes search INDEX "at night" --image room.jpg',
            "holmes search INDEX --like beach.mp4@1:23-1:30",
        ),
        "needs a picture; tests/index/test_composed_queries.py has some",
    ),
    **dict.fromkeys(
        (
            "holmes push RUN OWNER/NAME",
            "holmes index build INDEX VIDEOS… --model hub:OWNER/NAME",
            "holmes evaluate hub:OWNER/NAME STORE",
            "holmes train STORE --preset clip_b32 --out RUN --model hub:OWNER/NAME",
        ),
        "needs a hub; tests/encoders/test_hub.py has a stand-in",
    ),
    "holmes index seal SHARDS": "needs changed shards; tests/cluster/test_cluster_shards.py has some",
    "holmes serve SHARDS --ray HOST:6379": ON_RAY,
    "holmes serve SHARDS --ray HOST:6379 --copies 2 --cache /fast/disk": ON_RAY,
    "holmes serve SHARDS --ray local": ON_RAY,
    "holmes serve SHARDS --ray HEAD:6379": ON_RAY,
    "holmes extract VIDEOS… --out FEATURES --ray HOST:6379": ON_RAY,
    "holmes extract VIDEOS… --out FEATURES --ray HEAD:6379": ON_RAY,
    "holmes index build SHARDS VIDEOS… --shards N --ray HOST:6379": ON_RAY,
    "ray start --head --port 6379 --num-cpus 0": ON_RAY,
    "ray start --address HEAD:6379": ON_RAY,
    **dict.fromkeys(
        (
            "holmes reproduce DATA --out RESULTS",
            "holmes reproduce DATA --out RESULTS --plan",
            "holmes reproduce DATA --out TRIAL --set epochs=2 --set width=64",
            "holmes reproduce DATA --out RESULTS --tables main,efficiency,ablation,sweeps,figures --datasets "
            "charades,tvr --seeds 0,1,2 --jobs 0",
        ),
        "needs the field's features; tests/reproduce has tiny ones in the same layouts",
    ),
    "holmes data pack DATA/msvd msvd.store --visual vgg16_pca512 --text minilm_msvd_query_feat.hdf5": (
        "needs the user's data"
    ),
}


# Where the place stands that a command writes, counted from its first word.
WRITTEN = {
    "data pack": {3},
    "data caption": {4},
    "data plant": {2},
    "data export": {3},
    "index build": {2},
    "index split": {3},
}


def documented() -> dict[str, str]:
    """Command → where it stands, without the words behind it."""
    found: dict[str, str] = {}
    for page in PAGES:
        if page.name in GENERATED:
            continue
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if match := COMMAND.fullmatch(line):
                command = re.split(r"\s+# |\s{2,}", match[1])[0]
                found.setdefault(command, f"{page.name}:{number}")
    return found


RUN_HERE = [command for command in documented() if command not in ELSEWHERE]


class World:
    """What the placeholders of the documents stand for, and a folder for what commands write."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder, 0
        store = tiny_world(folder / "store")
        tiny_world(folder / "other", seed=1)
        export_store(store, folder / "source")
        for seed, name in enumerate(("run", "baseline")):
            settings = tiny_settings(epochs=1, held_out=0.4)
            train(store, settings, folder / name, seed, options=QUIET)
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL)
        (code,) = (block for block in blocks if "extend.loss(" in block)
        (folder / "mine.py").write_text(f"from holmes import extend\n\n{code.split('with_term')[0]}")

    def new(self, name: str) -> str:
        self.written += 1
        return str(self.folder / f"written{self.written}" / name)

    def arguments(self, command: str, films: Library) -> list[str]:
        """The command as it is typed, with tiny data in place of its capitals, and tiny settings."""
        parts = shlex.split(re.sub(r"[\[\]]", "", command))[1:]
        inputs = {
            "STORE": self.folder / "store",
            "SOURCE": self.folder / "source",
            "RUN": self.folder / "run",
            "OURS": self.folder / "run",
            "BASELINE": self.folder / "baseline",
            "mine.py": self.folder / "mine.py",
            "INDEX": films.index,
            "FEATURES": films.index / "features",
            "FOLDER": films.films,
            "VIDEO": "a.mp4",
            "P": "0.3",
            "N": "2",
            **dict.fromkeys(("VIDEOS…", "FOLDERS…", "FOLDER_OF_VIDEOS"), films.films),
            **dict.fromkeys(("CAPTIONS", "captions.csv"), films.root / "captions.csv"),
        }
        name = " ".join(part for part in parts[:2] if part.isalpha() and part.islower())
        options = {at for at, part in enumerate(parts) if part in ("--out", "--json", "--queries")}
        places = {at + 1 for at in options} | WRITTEN.get(name, set())
        named = [
            self.new(part) if at in places else str(inputs.get(part, part)) for at, part in enumerate(parts)
        ]
        if "--other" in named:
            named[named.index("--other") + 1] = str(self.folder / "other")
        return [*fewer(named), *self.tiny(name, named)]

    def tiny(self, name: str, parts: list[str]) -> list[str]:
        if name == "data plant":
            return ["--videos", "12", "--video-width", "16", "--text-width", "12"]
        if name == "extract":
            return ["--workers", "1"]
        if {"train", "ablate", "sweep"} & set(parts):
            changes = TINY | {"epochs": 1, "warm_up_epochs": 0, "held_out": 0.4}
            given = {part.partition("=")[0] for part in parts}
            sets = [f"{key}={value}" for key, value in changes.items() if key not in given]
            return [*(text for each in sets for text in ("--set", each)), "--device", "cpu"]
        return ["--device", "cpu"] if name in ("evaluate", "compare", "report") else []


def fewer(parts: list[str]) -> list[str]:
    """A single seed, and no processes beside this one: what they do is tested elsewhere."""
    small = {"0,1,2": "0", "6": "2", "epochs=30": "epochs=1"}
    parts = [small.get(part, part) for part in parts]
    if "--jobs" in parts:
        parts[parts.index("--jobs") + 1] = "1"
    return parts


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Library:
    root = tmp_path_factory.mktemp("films")
    with pytest.MonkeyPatch.context() as patch:
        see_colours(patch)
        library = three_films(root)
        describe(library)
    shutil.copytree(root, root.with_name("copy"))
    return library


@pytest.fixture
def films(sound: Library, monkeypatch: pytest.MonkeyPatch) -> Library:
    """As they were before the last command."""
    see_colours(monkeypatch)
    shutil.rmtree(sound.root)
    shutil.copytree(sound.root.with_name("copy"), sound.root)
    return sound


def describe(library: Library) -> None:
    """One more film, captions, and an index that has learnt from them."""
    library.film("2024/d.mp4", 10, 200)
    library.build()
    names = ("a.mp4", "b.mp4", "c.mp4")
    rows = [f"{names[number % 3]},sentence number {number}" for number in range(24)]
    (library.root / "captions.csv").write_text("\n".join(["video,sentence", *rows]))
    open_single_index(library.index, device="cpu").calibrate(library.root / "captions.csv")


@pytest.fixture(autouse=True)
def nothing_added_stays():
    with names_restored():
        yield


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("command", RUN_HERE)
def test_every_command_runs(
    command: str, world: World, films: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
) -> None:
    assert command.startswith("holmes "), f"{command} ({documented()[command]}): list it in ELSEWHERE"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["holmes", *world.arguments(command, films)])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert not ended.value.code, f"{' '.join(sys.argv)}: {capsys.readouterr().err}"


def test_what_is_not_run_is_still_documented() -> None:
    """A command that no page names any more needs no reason."""
    assert ELSEWHERE.keys() <= documented().keys()


def test_commands_in_sentences_exist() -> None:
    import typer

    root = typer.main.get_command(main.app)
    for page in PAGES:
        for words in re.findall(r"`holmes (?:--use [^\s`]+ )?([a-z]+(?: [a-z]+)?)", page.read_text()):
            first, *rest = words.split()
            assert first in root.commands, f"{page.name}: holmes {words}"
            below = getattr(root.commands[first], "commands", None)
            assert below is None or not rest or rest[0] in below, f"{page.name}: holmes {words}"


def test_the_page_of_commands_is_as_the_commands_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import command_reference

    assert (ROOT / "docs" / "commands.md").read_text() == command_reference.page(), (
        "run 'python tools/command_reference.py'"
    )
