"""Settings that fit a store: its widths, and its lengths."""

from __future__ import annotations

from dataclasses import replace

from holmes.config.schema import HolmesConfig
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.records import CLIPS, FRAMES, TOKENS


def fit_to_store(config: HolmesConfig, store: Store) -> HolmesConfig:
    """Any preset trains on any store: the widths of the features are the store's, and so are the lengths.

    Lengths that were changed on purpose must be the store's: it holds pooled frames and clips, not raw ones.
    """
    info, asked = store.info, config.model
    for name, usual in (("frames", FRAMES), ("clips", CLIPS), ("tokens", TOKENS)):
        wanted, found = getattr(asked, name), getattr(info, name)
        if wanted not in (usual, found):
            raise HolmesError(
                f"{store.path} was packed with {found} {name}, the settings ask for {wanted}; what it holds "
                f"is pooled already, so pack it again with 'holmes data pack … --{name} {wanted}'."
            )
    model = replace(
        asked,
        video_width=info.video_width,
        text_width=info.text_width,
        frames=info.frames,
        clips=info.clips,
        tokens=info.tokens,
    )
    return replace(config, model=model)
