"""A checkpoint of `holmes train`, or a published one, as the model of an index.

V videos, N raw rows, F frames, C clips, T tokens, D width
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from holmes.base.devices import device_named
from holmes.base.feature_origin import EncoderRecord, refuse_other_encoder
from holmes.data.pooling import query_tokens, video_clips, video_frames
from holmes.encoders.released import open_checkpoint
from holmes.errors import HolmesError
from holmes.evidence.calibration import EXTRA as CALIBRATION
from holmes.index.embedders.protocol import Rows
from holmes.media.backbones import (
    BUILT_IN,
    TextBackbone,
    VisualBackbone,
    lasting_name,
    load_text,
    load_visual,
)
from holmes.media.backbones.base import check_reads
from holmes.records import CLIPS, FRAMES, TOKENS, QueryEmbedding

TRAINED = "holmes"  # the kind of a model that has a checkpoint
UNKNOWN_PART_SECONDS = 180.0  # the longest part of a video, where the lengths of training videos are unknown
ENCODED_AT_ONCE = 32  # videos, in one pass of a trained model

Encoder = TypeVar("Encoder", VisualBackbone, TextBackbone)


class TrainedHolmes:
    """A checkpoint, single or dual query, with the encoders its features came from."""

    compares_images = False

    def __init__(
        self,
        folder: Path,
        visual: str | VisualBackbone | None = None,
        text: str | TextBackbone | None = None,
        device: str = "auto",
        name: str | None = None,
    ) -> None:
        """`name` is what an index remembers in place of the folder: hub:NAME of a model that was pulled."""
        self.folder = folder.resolve()
        self.name = name or str(self.folder)
        self.device = str(device_named(device))
        self.checkpoint = open_checkpoint(self.folder, self.device)
        if self.checkpoint.config.model.encoder in ("ms_sl", "gmmformer"):
            raise HolmesError(
                f"{self.folder} is a baseline ({self.checkpoint.config.model.encoder}) without a "
                "vector per frame, which search needs; train a model with another preset."
            )
        lengths = self.checkpoint.config.model
        if (lengths.frames, lengths.clips, lengths.tokens) != (FRAMES, CLIPS, TOKENS):
            raise HolmesError(
                f"{self.folder} takes {lengths.frames} frames, {lengths.clips} clips and {lengths.tokens} "
                f"tokens; an index is made for {FRAMES}, {CLIPS} and {TOKENS}: train on a store packed so."
            )
        self.trained_on = known = self.checkpoint.encoders
        self._visual = _lasting(visual or self._recorded(known.visual, "--visual"))
        self._text = _lasting(text or self._recorded(known.text, "--text"))
        config = self.checkpoint.config
        self.width = config.model.width
        self.frame_weight, self.clip_weight = config.score.frame_weight, config.score.clip_weight
        self.part_seconds = self.checkpoint.training_seconds or UNKNOWN_PART_SECONDS

    def _recorded(self, known: EncoderRecord | None, option: str) -> str:
        """The recorded name; an unknown encoder must be named, as another of its width would find nothing."""
        if known is None:
            raise HolmesError(
                f"{self.folder} does not know which encoder its features came from; name it with {option} "
                "(the encoders of 'holmes extract' and of the demo are --visual lite2 --text minilm)."
            )
        return known.name

    def refuse_other_rate(self, rate: float) -> None:
        """Refuse a rate that was asked for and is not the one that the model was trained on."""
        trained = self.trained_on.rate
        if trained is not None and rate != trained:
            raise HolmesError(
                f"{self.folder} was trained on {trained:g} samples per second, not {rate:g}; leave out "
                f"--rate, or extract features with --rate {rate:g} and make the index of these."
            )

    @property
    def rate(self) -> float:
        """Samples per second: the rate it was trained on, or the one that suits its encoder best."""
        return self.trained_on.rate or self.visual.rate

    @property
    def record(self) -> dict[str, Any]:
        return {
            "kind": TRAINED,
            "name": self.name,
            "digest": self.checkpoint.digest,
            "visual": _name(self._visual),
            "text": _name(self._text),
            "text_digest": self.text.digest,
            "part_seconds": self.part_seconds,
        }

    @property
    def calibration(self) -> Any:
        return self.checkpoint.extras.get(CALIBRATION)

    @property
    def extractor(self) -> str | VisualBackbone:
        return self._visual

    @cached_property
    def visual(self) -> VisualBackbone:
        visual = self._visual
        if isinstance(visual, str):
            with self._hint("--visual"):
                visual = load_visual(visual, device=self.device)
        wanted = self.checkpoint.config.model.video_width
        self._refuse_other(self.trained_on.visual, visual, wanted, "visual features", "--visual")
        return visual

    @cached_property
    def text(self) -> TextBackbone:
        text = self._text
        if isinstance(text, str):
            with self._hint("--text"):
                text = load_text(text, device=self.device)
        wanted = self.checkpoint.config.model.text_width
        self._refuse_other(self.trained_on.text, text, wanted, "token features", "--text")
        if text.name not in BUILT_IN:
            check_reads(text, text.name)
        return text

    @contextmanager
    def _hint(self, option: str) -> Iterator[None]:
        """Say which option names the encoder: a published model records the folder of its author by name."""
        try:
            yield
        except HolmesError as error:
            where = f"If the encoder of {self.folder} is in a folder, name it with {option} FOLDER."
            raise HolmesError(f"{error} {where}") from None

    def _refuse_other(
        self,
        known: EncoderRecord | None,
        loaded: VisualBackbone | TextBackbone,
        width: int,
        features: str,
        option: str,
    ) -> None:
        """Refuse an encoder that is not the one the model was trained with, or not as wide."""
        if loaded.width != width:
            raise HolmesError(
                f"{self.folder} was trained on {features} of width {width}, '{loaded.name}' gives "
                f"{loaded.width}; name the encoder that made them with {option}."
            )
        found = EncoderRecord(loaded.name, loaded.digest, loaded.width)
        refuse_other_encoder(known, found, str(self.folder), f"name with {option} where that encoder is now")

    def videos(
        self, features: Sequence[Rows], seconds: Sequence[float], parts: Sequence[Sequence[slice]]
    ) -> list[list[tuple[Rows, Rows]]]:
        rows = [rows_ND[part] for rows_ND, own in zip(features, parts, strict=True) for part in own]
        starts = range(0, len(rows), ENCODED_AT_ONCE)
        encoded = (part for start in starts for part in self._encode(rows[start : start + ENCODED_AT_ONCE]))
        return [list(islice(encoded, len(own))) for own in parts]

    def _encode(self, features: Sequence[Rows]) -> list[tuple[Rows, Rows]]:
        model = self.checkpoint.model
        frames_VFD, lengths_V = self._padded(
            [video_frames(rows_ND) for rows_ND in features], model.config.frames
        )
        clips_VCD = torch.from_numpy(np.stack([video_clips(rows_ND) for rows_ND in features])).to(self.device)
        with torch.inference_mode():
            video = model.encode_videos(frames_VFD, lengths_V, clips_VCD)
        return [
            (frames_FD[:length].numpy(), clips_CD.numpy())
            for frames_FD, clips_CD, length in zip(
                video.frames_VFD.cpu(), video.clips_VCD.cpu(), lengths_V.tolist(), strict=True
            )
        ]

    def queries(self, sentences: Sequence[str]) -> QueryEmbedding:
        model = self.checkpoint.model
        tokens = [query_tokens(rows_TD) for rows_TD in self.text.tokens(sentences)]
        with torch.inference_mode():
            return model.encode_queries(*self._padded(tokens, model.config.tokens))

    def _padded(self, rows: Sequence[Rows], length: int) -> tuple[Tensor, Tensor]:
        padded = np.zeros((len(rows), length, rows[0].shape[1]), np.float32)
        for padded_LD, rows_ND in zip(padded, rows, strict=True):
            padded_LD[: len(rows_ND)] = rows_ND
        lengths = torch.tensor([len(rows_ND) for rows_ND in rows], device=self.device)
        return torch.from_numpy(padded).to(self.device), lengths


def _lasting(encoder: str | Encoder) -> str | Encoder:
    """An encoder as it was given, its name valid in any folder."""
    return lasting_name(encoder) if isinstance(encoder, str) else encoder


def _name(encoder: str | VisualBackbone | TextBackbone) -> str:
    return encoder if isinstance(encoder, str) else encoder.name
