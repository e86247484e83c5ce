"""The captions of a rendered world as sentences of a collection."""

from __future__ import annotations

from holmes.media.collection import VideoCaption
from holmes.media.feature_folder import FeatureFolder
from holmes.worlds.rendered import RenderedWorld


def world_captions(world: RenderedWorld, features: FeatureFolder) -> list[VideoCaption]:
    """The rendered world's captions, for the videos that were extracted from it."""
    at = {video.source: video.id for video in features}
    id_of = {video.id: at[path] for video in world.videos if (path := world.path(video).absolute()) in at}
    return [
        VideoCaption(
            video=id_of[caption.video],
            text=caption.text,
            split=group,
            moment=(caption.start, caption.end),
            kind=caption.kind.name.lower(),
            also_fits=tuple(id_of[other] for other in caption.also_fits if other in id_of),
        )
        for group in ("train", "val", "test")
        for caption in world.captions_of(group)
        if caption.video in id_of
    ]
