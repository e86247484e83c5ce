"""From features to an index: what goes in, what is refused, and that it can be continued."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from holmes.config.schema import HolmesConfig, ModelConfig
from holmes.encoders.checkpoint import save_checkpoint, update_extras
from holmes.encoders.model import HolmesModel
from holmes.errors import HolmesError
from holmes.evidence.calibration import EXTRA, Calibration
from holmes.index.answer.searcher import open_single_index
from holmes.index.embedders import trained
from holmes.index.embedders.loading import load_embedder
from holmes.index.embedders.trained import TrainedHolmes
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest import builder
from holmes.index.ingest.builder import add_videos, build_index
from holmes.index.ingest.parts import pooled_spans, row_spans
from holmes.index.storage.maintenance import compact_index
from holmes.index.storage.manifest import Manifest, read_manifest, write_manifest
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter, create_index
from holmes.media.backbones.base import JointBackbone
from holmes.media.extraction import ExtractionSummary, Failure
from holmes.media.feature_folder import FeatureFolder, Fingerprint
from holmes.records import VideoEmbedding
from holmes.similarity import reference_scores
from index_fakes import FILMS, RATE, WIDTH, FakeJoint, every_name_loads, known_encoders, write_features


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeJoint]:
    """A fresh class, so that a test may change what it is."""

    class Fake(FakeJoint):
        pass

    known_encoders(monkeypatch, Fake())
    assert isinstance(Fake(), JointBackbone)
    return Fake


def test_a_video_becomes_its_pooled_rows_and_their_seconds(tmp_path: Path, fake: type[FakeJoint]) -> None:
    features = write_features(tmp_path / "features", FILMS)
    build_index(tmp_path / "index", [features.path], ZeroShot(fake()))
    store = IndexStore.open(tmp_path / "index")
    assert sorted(store.positions) == ["/films/coast.mp4", "/films/kitchen.mp4", "/films/street.mp4"]
    short, long = store["/films/coast.mp4"], store["/films/street.mp4"]
    assert (short.frames, short.duration) == (120, 60.0)
    rows = next(video.rows for video in features if video.id.startswith("coast"))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(short.rows_SPD[0, :120].astype(np.float32), unit, atol=1e-3)
    np.testing.assert_allclose(short.spans_SP2[0, :120, 0], np.arange(120) / RATE)
    clip = rows[12:22].mean(0)  # clip 4 of 32, rows 15 to 18 of 120: five seconds around them
    clip /= np.linalg.norm(clip)
    np.testing.assert_allclose(short.rows_SPD[0, 128 + 4].astype(np.float32), clip, atol=1e-3)
    np.testing.assert_allclose(short.spans_SP2[0, 128 + 4], [7.5, 9.5])
    # 129 seconds are three parts that overlap by 16: 53.7 seconds each, 108 rows, padded to 112.
    assert long.frames == 108 and long.rows_SPD.shape == (3, 112 + 32, WIDTH)
    assert long.spans_SP2[:, 0, 0].tolist() == [0, 37.5, 75] and long.spans_SP2[:, 107, 1].tolist() == [
        54,
        91.5,
        129,
    ]
    rows = next(video.rows for video in features if video.id.startswith("street"))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for part, start in enumerate((0, 75, 150)):
        np.testing.assert_allclose(long.rows_SPD[part, :108], unit[start : start + 108], atol=1e-3)


def test_spans_begin_where_the_pictures_do() -> None:
    assert row_spans(np.array([0.25, 0.75, 1.25]), 0.0, 1.5)[:, 0].tolist() == [0.0, 0.5, 1.0]
    assert row_spans(np.array([90.25, 90.75]), 90.0, 91.0).tolist() == [[90.0, 90.5], [90.5, 91.0]]
    assert row_spans(np.array([1.0]), 0.5, 1.5).tolist() == [[0.5, 1.5]]


def test_pictures_that_come_late_are_pooled_by_their_own_seconds(
    tmp_path: Path, fake: type[FakeJoint]
) -> None:
    early = write_features(tmp_path / "early", FILMS)
    late = write_features(tmp_path / "late", FILMS)
    for video in list(late):
        later = replace(video, times=video.times + 90, start=90.0, duration=video.duration + 90)
        late.write(later, Fingerprint(1, 1))
    for features in (early, late):
        build_index(tmp_path / f"{features.path.name}-index", [features.path], ZeroShot(fake()))
    early_video, late_video = (
        IndexStore.open(tmp_path / f"{name}-index")["/films/street.mp4"] for name in ("early", "late")
    )
    np.testing.assert_array_equal(early_video.rows_SPD, late_video.rows_SPD)
    np.testing.assert_allclose(early_video.spans_SP2 + 90, late_video.spans_SP2, rtol=1e-6)


def test_spans_cover_the_video_without_gaps() -> None:
    for count in (1, 2, 31, 32, 33, 127, 128, 129, 1000):
        times = np.sort(np.random.default_rng(count).uniform(0, 90, count))
        spans = row_spans(times, 0.0, 100.0)
        assert spans[0, 0] == 0 and spans[-1, 1] == 100
        np.testing.assert_array_equal(spans[1:, 0], spans[:-1, 1])
        assert (spans[:, 0] - 1e-4 <= times).all() and (times <= spans[:, 1] + 1e-4).all()
        for length in (32, 128):
            pooled = pooled_spans(spans, length)
            assert len(pooled) == length and pooled[0, 0] == 0 and pooled[-1, 1] == 100
            assert (pooled[:, 1] > pooled[:, 0]).all() and (np.diff(pooled[:, 0]) >= 0).all()
            assert (pooled[1:, 0] <= pooled[:-1, 1]).all()


def test_building_again_does_what_is_left(tmp_path: Path, fake: type[FakeJoint]) -> None:
    features, index = tmp_path / "features", tmp_path / "index"
    write_features(features, dict(list(FILMS.items())[:2]))
    first = build_index(index, [features], ZeroShot(fake()))
    write_features(features, FILMS)
    second = build_index(index, [features], ZeroShot(fake()))
    assert (first.added, second.added, second.unchanged) == (2, 1, 2)
    write_features(features, {"coast": [("snow falls", 30)]})
    third = add_videos(index, [features], ZeroShot(fake()))
    assert (third.added, third.unchanged) == (1, 2)
    assert IndexStore.open(index)["/films/coast.mp4"].duration == 30


def test_another_model_or_other_features_are_refused(tmp_path: Path, fake: type[FakeJoint]) -> None:
    features, index = write_features(tmp_path / "features", FILMS), tmp_path / "index"
    build_index(index, [features.path], ZeroShot(fake()))
    fake.digest = "e2" * 32
    for attempt in (
        lambda: build_index(index, [features.path], ZeroShot(fake())),
        lambda: add_videos(index, [features.path]),
        lambda: open_single_index(index, device="cpu").search("dog runs"),
    ):
        with pytest.raises(HolmesError, match=r"made with 'fake' \(d1d1d1d1d1d1\), not with 'fake' \(e2e2"):
            attempt()
    with pytest.raises(HolmesError, match="contains features of 'fake'"):
        build_index(tmp_path / "other", [features.path], ZeroShot(fake()))
    with pytest.raises(HolmesError, match="no videos were found"):
        (tmp_path / "bare").mkdir()
        build_index(tmp_path / "other", [tmp_path / "bare"], ZeroShot(fake()))
    assert not (tmp_path / "other").exists(), "a refused build leaves nothing behind"
    with pytest.raises(HolmesError, match="sampled 2 times per second, not 5"):
        fake.digest = FakeJoint.digest
        add_videos(index, [features.path], ZeroShot(fake()), rate=5.0)
    fake.joint = False
    with pytest.raises(HolmesError, match="cannot be compared with sentences"):
        load_embedder("fake")
    with pytest.raises(HolmesError, match="belong to a trained checkpoint"):
        load_embedder("fake", text="minilm")


def test_clips_of_a_long_film_stay_inside_scenes(tmp_path: Path, fake: type[FakeJoint]) -> None:
    """In a short one they do not. An index of an earlier version, whose record names cuts, takes new ones."""
    scenes = [("dog runs", 6), ("snow falls", 6)]
    films = {"a": scenes * 8, "b": scenes * 9, "short": scenes}
    features, index = tmp_path / "features", tmp_path / "index"
    write_features(features, {name: films[name] for name in ("a", "short")})
    build_index(index, [features], ZeroShot(fake()))
    manifest = read_manifest(index)
    write_manifest(index, replace(manifest, model=manifest.model | {"cut_cosine": 0.3}))
    write_features(features, films)
    assert build_index(index, [features], ZeroShot(fake())).added == 1
    seen_2D = np.concatenate([fake().sentences([scene]) for scene, _ in scenes])
    seen_2D /= np.linalg.norm(seen_2D, axis=1, keepdims=True)
    for name, mixed in (("a", False), ("b", False), ("short", True)):
        clips_SCD = IndexStore.open(index)[f"/films/{name}.mp4"].rows_SPD[:, -32:].astype(np.float32)
        assert (len(clips_SCD) == 1) == (name == "short")
        assert bool(((clips_SCD @ seen_2D.T).max(axis=-1) < 0.9).any()) == mixed


def test_compacting_frees_the_features_of_removed_videos(tmp_path: Path, fake: type[FakeJoint]) -> None:
    index = tmp_path / "index"
    build_index(index, [write_features(tmp_path / "features", FILMS).path], ZeroShot(fake()))
    shutil.copytree(tmp_path / "features", index / "features")  # where extraction for an index keeps them
    with IndexWriter(index) as writer:
        writer.remove(["/films/street.mp4"])
    assert compact_index(index) > 0
    kept = sorted(path.name.split("-")[0] for path in (index / "features" / "videos").iterdir())
    assert kept == ["coast", "kitchen"] and len(IndexStore.open(index)) == 2


def checkpoint(folder: Path, dual: bool, seed: int = 0) -> HolmesModel:
    torch.manual_seed(seed)
    model = ModelConfig(WIDTH, WIDTH, width=16, heads=2, dual_query=dual, gaussian_widths=(None, 1.0))
    config = HolmesConfig("small", model)
    network = HolmesModel(model)
    with torch.no_grad():  # wide enough that videos differ
        for parameter in network.parameters():
            parameter.mul_(3)
    save_checkpoint(folder, network, config)
    return network.eval()


@pytest.mark.parametrize("dual", [False, True])
def test_a_trained_model_scores_as_in_training(tmp_path: Path, fake: type[FakeJoint], dual: bool) -> None:
    network = checkpoint(tmp_path / "run" / "best", dual)  # as training leaves it
    features, index = write_features(tmp_path / "features", FILMS), tmp_path / "index"
    build_index(index, [features.path], load_embedder(str(tmp_path / "run"), "fake", "fake"))
    sentences = ["dog barks cat", "water boils", "sun"]
    answers = open_single_index(index, device="cpu").search_many(sentences, top=3)
    for sentence, answer in zip(sentences, answers, strict=True):
        expected = {str(video.source): slow_score(network, video.rows, sentence) for video in features}
        assert [hit.video for hit in answer.hits] == sorted(expected, key=expected.get, reverse=True)
        for hit in answer.hits:
            assert hit.score == pytest.approx(expected[hit.video], abs=1e-3)


@torch.inference_mode()
def slow_score(network: HolmesModel, rows: np.ndarray, sentence: str) -> float:
    """One video and one sentence through the network, pooled here by hand."""

    def pool(length: int) -> np.ndarray:
        count = len(rows)
        bounds = [min(round(k * count / length), count - 1) for k in range(length + 1)]
        pooled = [rows[a : max(b, a + 1)].mean(0) for a, b in pairwise(bounds)]
        return np.stack(pooled)

    def unit(x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(x / (np.linalg.norm(x, axis=1, keepdims=True) + 1e-5)).float()

    seen = unit(pool(128) if len(rows) > 128 else rows)
    frames, clips = torch.zeros(1, 128, WIDTH), unit(pool(32))[None]
    frames[0, : len(seen)] = seen
    video: VideoEmbedding = network.encode_videos(frames, torch.tensor([len(seen)]), clips)
    words = unit(FakeJoint().tokens([sentence])[0])
    tokens = torch.zeros(1, 30, WIDTH)
    tokens[0, : len(words)] = words
    query = network.encode_queries(tokens, torch.tensor([len(words)]))
    return float(reference_scores(query, video).combined(0.4, 0.6))


def test_a_checkpoint_may_move_but_not_change(tmp_path: Path, fake: type[FakeJoint]) -> None:
    checkpoint(tmp_path / "run", dual=False)
    features, index = write_features(tmp_path / "features", FILMS), tmp_path / "index"
    build_index(index, [features.path], load_embedder(str(tmp_path / "run"), "fake", "fake"))
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(
        HolmesError, match=f"no longer in {tmp_path / 'run'}; say with --model where it is now"
    ):
        open_single_index(index, device="cpu").search("dog")
    with pytest.raises(HolmesError, match=f"no longer in {tmp_path / 'films'}; say with --model"):
        open_single_index(index, device="cpu", model=str(tmp_path / "films")).search("dog")
    assert open_single_index(index, device="cpu", model=str(tmp_path / "moved")).search("dog").hits
    checkpoint(tmp_path / "moved", dual=False, seed=1)
    with pytest.raises(HolmesError, match="build another index"):
        open_single_index(index, device="cpu", model=str(tmp_path / "moved")).search("dog")


def test_the_folder_of_an_encoder_is_found_from_anywhere(
    tmp_path: Path, fake: type[FakeJoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    every_name_loads(monkeypatch, fake())
    checkpoint(tmp_path / "run", dual=False)
    (tmp_path / "words").mkdir()
    monkeypatch.chdir(tmp_path)
    record = load_embedder("run", "timm:net@weights.pt", "words").record
    assert record["name"] == str(tmp_path / "run")
    assert record["text"] == str(tmp_path / "words")
    assert record["visual"] == f"timm:net@{tmp_path / 'weights.pt'}"


def test_features_of_another_width_are_named(tmp_path: Path, fake: type[FakeJoint]) -> None:
    checkpoint(tmp_path / "run", dual=False)
    fake.width = 99
    embedder = TrainedHolmes(tmp_path / "run", "fake", "fake")
    with pytest.raises(HolmesError, match=r"width 32, 'fake' gives 99.*--visual"):
        _ = embedder.visual
    with pytest.raises(HolmesError, match=r"width 32, 'fake' gives 99.*--text"):
        _ = embedder.text


def test_a_calibrated_checkpoint_says_how_sure(tmp_path: Path, fake: type[FakeJoint]) -> None:
    run, index = tmp_path / "run", tmp_path / "index"
    checkpoint(run, dual=True)
    embedder = load_embedder(str(run), "fake", "fake")
    calibration = Calibration(embedder.record["digest"], 2, 0.4, 0.6, 0.05, 0.02, 0.5, 100, 50)
    update_extras(run, {EXTRA: calibration.to_dict()})
    build_index(index, [write_features(tmp_path / "features", FILMS).path], embedder)
    answer = open_single_index(index, device="cpu").search("dog barks cat")
    first, second, third = answer.hits
    assert answer.diagnosis.kind in ("precise", "several_fit", "too_little") and answer.diagnosis.advice
    assert answer.diagnosis.probability == first.probability >= second.probability > 0
    assert third.probability is None, "beyond the candidates nothing is known"
    assert {"vacuity", "conflict", "uncertainty"} <= answer.to_dict()["diagnosis"].keys()
    assert open_single_index(index, device="cpu").search("dog", abstain_below=1.0).abstained
    update_extras(run, {EXTRA: calibration.to_dict() | {"model": "another"}})
    with pytest.raises(HolmesError, match="belongs to another model"):
        open_single_index(index, device="cpu").search("dog")


@pytest.mark.parametrize("rate", [-1.0, 0.0, float("nan"), float("inf"), 101.0])
def test_a_rate_that_cannot_be_leaves_no_index(tmp_path: Path, fake: type[FakeJoint], rate: float) -> None:
    (tmp_path / "v.mp4").touch()
    with pytest.raises(HolmesError, match=r"not between \.01 and 100"):
        build_index(tmp_path / "index", [tmp_path / "v.mp4"], ZeroShot(fake()), rate=rate)
    assert not (tmp_path / "index").exists()


def test_what_cannot_fill_an_index_makes_none(tmp_path: Path, fake: type[FakeJoint]) -> None:
    embedder, index = ZeroShot(fake()), tmp_path / "index"
    empty = write_features(tmp_path / "empty", {})
    for videos, words in (
        ([], "no videos were found"),
        ([tmp_path / "nope.mp4"], "nope.mp4 does not exist"),
        ([tmp_path / ("x" * 300)], "does not exist"),
        ([empty.path], "no videos' features yet"),
    ):
        with pytest.raises(HolmesError, match=words):
            build_index(index, videos, embedder)
        assert not index.exists()
    create_index(index, Manifest(embedder.record, {}, WIDTH, 32))
    with pytest.raises(HolmesError, match="made elsewhere"):
        add_videos(index, [write_features(tmp_path / "features", FILMS).path], embedder)


def test_other_features_say_how_to_get_the_right_ones(tmp_path: Path, fake: type[FakeJoint]) -> None:
    features = write_features(tmp_path / "features", FILMS)
    fake.digest = "e2" * 32
    with pytest.raises(HolmesError, match="extract with --backbone fake --rate 2"):
        build_index(tmp_path / "index", [features.path], ZeroShot(fake()))


@pytest.fixture
def coast_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that extraction takes for /films/coast.mp4."""

    def extract(files: list[Path], out: Path, name: str, **_: object) -> ExtractionSummary:
        folder = write_features(out, {"coast": FILMS["coast"]})
        return ExtractionSummary(folder, (Path("/films/coast.mp4"),), (), (), (), 0.0)

    monkeypatch.setattr(builder, "extract", extract)
    (tmp_path / "coast.mp4").touch()
    return tmp_path / "coast.mp4"


def test_a_video_given_twice_is_one(tmp_path: Path, fake: type[FakeJoint], coast_file: Path) -> None:
    features, index = write_features(tmp_path / "features", FILMS).path, tmp_path / "index"
    file = next((features / "videos").glob("kitchen-*"))
    shutil.copy(file, file.with_name("copy.safetensors"))  # another file, the same source
    summary = build_index(index, [features, features, coast_file], ZeroShot(fake()))
    assert (summary.added, summary.unchanged, summary.failures) == (3, 0, ())


def test_features_that_cannot_be_read_are_left_out(tmp_path: Path, fake: type[FakeJoint]) -> None:
    features, index = write_features(tmp_path / "features", FILMS), tmp_path / "index"
    coast, kitchen, _ = map(features.file, features.ids())
    coast.write_bytes(coast.read_bytes()[:500])
    whole = features[features.ids()[1]]
    features.write(replace(whole, times=whole.times[:-1]), Fingerprint(1, 1))
    summary = build_index(index, [features.path], ZeroShot(fake()))
    assert summary.added == 1 and list(IndexStore.open(index).positions) == ["/films/street.mp4"]
    damaged, contradictory = summary.failures
    assert damaged.source == coast and "damaged" in damaged.reason
    assert contradictory.source == kitchen and "do not belong together" in contradictory.reason


def test_rows_of_another_width_are_left_out(tmp_path: Path, fake: type[FakeJoint]) -> None:
    features, index = write_features(tmp_path / "features", FILMS), tmp_path / "index"
    whole = features[features.ids()[0]]
    features.write(replace(whole, rows=whole.rows[:, :9]), Fingerprint(1, 1))
    (failure,) = build_index(index, [features.path], ZeroShot(fake())).failures
    assert (
        failure.reason
        == f"its rows have width 9, those of its encoder {WIDTH}; extract {whole.source} again."
    )


def test_videos_read_in_part_are_named(tmp_path: Path, fake: type[FakeJoint]) -> None:
    features, index = write_features(tmp_path / "features", FILMS), tmp_path / "index"
    features.write(replace(features[features.ids()[0]], note="it ends early"), Fingerprint(1, 1))
    summary = build_index(index, [features.path], ZeroShot(fake()))
    assert summary.partial == (Failure(Path("/films/coast.mp4"), "it ends early"),)


def test_what_a_killed_extraction_left_is_swept(
    tmp_path: Path, fake: type[FakeJoint], coast_file: Path
) -> None:
    index = tmp_path / "index"
    build_index(index, [coast_file], ZeroShot(fake()))
    for again in (lambda: add_videos(index, [coast_file], ZeroShot(fake())), lambda: compact_index(index)):
        left = [index / "features" / "videos" / ".x.safetensors.1.part", index / "features" / ".y.2.part"]
        for file in left:
            file.touch()
        again()
        assert not any(file.exists() for file in left)
    assert len(FeatureFolder.open(index / "features")) == 1


def test_frames_go_through_the_encoder_of_the_index(
    tmp_path: Path, fake: type[FakeJoint], coast_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(FakeJoint):
        name, digest = "other", "e2" * 32

    checkpoint(tmp_path / "run", dual=False)
    features, index = write_features(tmp_path / "features", FILMS), tmp_path / "index"
    build_index(index, [features.path], load_embedder(str(tmp_path / "run"), "fake", "fake"))
    monkeypatch.setattr(trained, "load_visual", lambda name, **how: Other())
    for attempt in (
        lambda: build_index(index, [coast_file], load_embedder(str(tmp_path / "run"), "other", "fake")),
        lambda: add_videos(index, [coast_file]),
    ):
        with pytest.raises(HolmesError, match=r"features of 'fake' \(d1d1.*not of 'other' \(e2e2"):
            attempt()


def test_one_bad_feature_file_costs_only_itself(tmp_path: Path, fake: type[FakeJoint]) -> None:
    """Whole by its checksum, but of a name that no index can hold."""
    features, index = write_features(tmp_path / "features", FILMS), tmp_path / "index"
    bad = replace(features[features.ids()[0]], id="bad", source=Path("/films/a\0b.mp4"))
    features.write(bad, Fingerprint(1, 1))
    summary = build_index(index, [features.path], ZeroShot(fake()))
    assert summary.added == 3 and len(IndexStore.open(index)) == 3
    (failure,) = summary.failures
    assert failure.source == bad.source and "cannot name a video" in failure.reason


def test_videos_are_committed_as_they_finish(
    tmp_path: Path, fake: type[FakeJoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extraction that is stopped half-way leaves an index of what it had done."""

    def extract(files: list[Path], out: Path, name: str, *, finished: object, **_: object) -> None:
        for film in FILMS:
            write_features(out, {film: FILMS[film]})
            finished(Path(f"/films/{film}.mp4"))
            if film == "kitchen":
                raise KeyboardInterrupt

    monkeypatch.setattr(builder, "extract", extract)
    monkeypatch.setattr(builder, "MOST_SECONDS", 0.0)
    (tmp_path / "coast.mp4").touch()
    with pytest.raises(KeyboardInterrupt):
        build_index(tmp_path / "index", [tmp_path / "coast.mp4"], ZeroShot(fake()))
    assert sorted(IndexStore.open(tmp_path / "index").positions) == ["/films/coast.mp4", "/films/kitchen.mp4"]


def test_features_held_are_bounded_by_their_bytes(
    tmp_path: Path, fake: type[FakeJoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    features = write_features(tmp_path / "features", {f"film{n}": [("dog runs", 10)] for n in range(9)})
    one = features[features.ids()[0]]
    size = one.rows.nbytes + one.times.nbytes
    monkeypatch.setattr(builder, "MOST_BYTES", 2 * size)
    embed, groups = builder.embed_videos, []

    def watched(videos: list[object], *rest: object) -> object:
        groups.append(len(videos))
        return embed(videos, *rest)

    monkeypatch.setattr(builder, "embed_videos", watched)
    build_index(tmp_path / "index", [features.path], ZeroShot(fake()))
    assert groups == [2, 2, 2, 2, 1] and len(IndexStore.open(tmp_path / "index")) == 9
