from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")

from by_hand import seal
from holmes.errors import HolmesError
from holmes.media.reader import VideoReader
from holmes.records import QueryKind
from holmes.worlds.rendered import RenderedWorld, RenderSettings, Scene, render_world
from holmes.worlds.rendered.scene_words import BACKGROUNDS, COLOURS, SHAPES

SMALL = RenderSettings(train_videos=3, test_videos=4, size=(96, 72), seed=3)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> RenderedWorld:
    return render_world(tmp_path_factory.mktemp("rendered") / "world", SMALL)


def test_the_same_settings_give_the_same_bytes(world: RenderedWorld, tmp_path: Path) -> None:
    again = render_world(tmp_path / "again", SMALL)
    assert (again.videos, again.captions) == (world.videos, world.captions)
    for video in world.videos[:3]:
        assert again.path(video).read_bytes() == world.path(video).read_bytes()


def test_a_finished_world_is_used_and_another_refused(world: RenderedWorld) -> None:
    before = world.path(world.videos[0]).stat().st_mtime_ns
    assert render_world(world.folder, SMALL).videos == world.videos
    assert world.path(world.videos[0]).stat().st_mtime_ns == before
    with pytest.raises(HolmesError, match="not rendered with these settings"):
        render_world(world.folder, RenderSettings(train_videos=5, test_videos=4))


def test_files_last_as_long_as_their_scenes(world: RenderedWorld) -> None:
    for video in world.videos:
        reader = VideoReader(world.path(video), rate=2.0)
        assert len(list(reader)) == pytest.approx(2 * video.duration, abs=1)
        assert reader.duration == pytest.approx(video.duration, abs=0.2)
        assert SMALL.scenes[0] <= len(video.scenes) <= SMALL.scenes[1]


def test_the_colour_of_each_scene_is_on_the_screen_while_it_lasts(world: RenderedWorld) -> None:
    """Pixels near the ink of the scene's own colour; yellow and white also occur in backgrounds."""
    telling = {"red", "blue", "green", "purple"}
    checked = 0
    for video in world.videos:
        samples = list(VideoReader(world.path(video), rate=2.0))
        for scene in video.scenes:
            inside = [s.image for s in samples if scene.start + 0.2 < s.time < scene.end - 0.2]
            assert inside
            if scene.colour not in telling or scene.background == "meadow":
                continue
            checked += 1
            for image in inside:
                ink = np.abs(image.astype(int) - COLOURS[scene.colour]).max(axis=2) < 40
                assert ink.mean() > 0.04
    assert checked >= 5


def fits(scene: Scene, text: str) -> bool:
    """Whether the words of a caption are true of a scene: read from the text alone, word by word."""
    plain = text.replace("green meadow", "").replace("black and white", "")
    named = {
        "colour": [c for c in COLOURS if c in plain],
        "shape": [s for s, words in SHAPES.items() if any(f" {w}" in f" {text}" for w in words)],
        "background": [b for b, words in BACKGROUNDS.items() if any(w in text for w in words)],
    }
    if "among the stars" in text and "star" in named["shape"]:
        rest = text.replace("among the stars of the night", "")
        named["shape"] = [s for s, words in SHAPES.items() if any(f" {w}" in f" {rest}" for w in words)]
    return all(not values or getattr(scene, name) in values for name, values in named.items())


def test_kinds_and_fits_follow_from_what_the_words_say(world: RenderedWorld) -> None:
    videos = {video.id: video for video in world.videos}
    seen = set()
    for caption in world.captions:
        group = world.of_group(videos[caption.video].group)
        fitting = {video.id for video in group if any(fits(scene, caption.text) for scene in video.scenes)}
        if "shape" in caption.text:  # 'a shape is moving' names no shape
            fitting = {video.id for video in group}
        assert fitting == {caption.video, *caption.also_fits}, caption.text
        if len(fitting) == 1:
            wanted = QueryKind.PRECISE
        elif len(fitting) > len(group) / 4:
            wanted = QueryKind.UNDERDETERMINED
        else:
            wanted = QueryKind.POLYSEMOUS
        assert caption.kind == wanted
        seen.add(caption.kind)
        scenes = videos[caption.video].scenes
        (scene,) = [s for s in scenes if (s.start, s.end) == (caption.start, caption.end)]
        assert fits(scene, caption.text)
    assert {QueryKind.PRECISE, QueryKind.UNDERDETERMINED} <= seen


def test_a_part_of_the_test_videos_has_no_captions(world: RenderedWorld) -> None:
    captioned = {caption.video for caption in world.captions_of("test")}
    assert len(captioned) == 3 and len(world.of_group("test")) == 4


def test_the_full_plan_has_all_kinds_in_both_groups() -> None:
    from holmes.worlds.rendered.plan import plan_captions, plan_videos

    settings = RenderSettings()
    videos = plan_videos(settings)
    captions = plan_captions(settings, videos)
    for group in ("train", "test"):
        kinds = [c.kind for c in captions if c.video.startswith(group)]
        assert all(kinds.count(kind) >= 10 for kind in QueryKind)


def test_val_videos_are_captioned_and_change_no_other() -> None:
    from holmes.worlds.rendered.plan import plan_captions, plan_videos

    without, settings = RenderSettings(5, 6), RenderSettings(5, 6, val_videos=8, vaguer=3)
    videos = plan_videos(settings)
    assert [video for video in videos if video.group != "val"] == plan_videos(without)
    val = [video for video in videos if video.group == "val"]
    captions = plan_captions(settings, videos)
    assert len(val) == 8 and {video.id for video in val} <= {caption.video for caption in captions}
    for video in videos:
        told = [caption.text for caption in captions if caption.video == video.id]
        assert len(set(told)) == len(told), "no sentence is said twice of one video"
    vague = [len([c for c in captions if c.video == v.id]) - 2 * len(v.scenes) for v in val]
    assert max(vague) == 6 and min(vague) > 2, "three of either kind, less what was said before"
    with pytest.raises(HolmesError, match="val_videos is 1; it is 0, or at least 2"):
        RenderSettings(val_videos=1)


def test_a_world_that_lies_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "world").mkdir()
    video = {"id": "v", "group": "train", "scenes": [], "captioned": True}
    body = {"format": "holmes-rendered-world", "version": 2, "settings": {}, "videos": [], "captions": []}
    away = video | {"id": "../../v"}
    for change in ({"videos": 3}, {"videos": [video]}, {"videos": [away]}, {"settings": 1}):
        seal(tmp_path / "world/world.json", body | change)
        with pytest.raises(HolmesError, match=r"world\.json is damaged: .*; render it again\.$"):
            RenderedWorld.open(tmp_path / "world")
