"""Build the model that the settings name."""

from __future__ import annotations

from collections.abc import Callable

from holmes.config.schema import ModelConfig
from holmes.encoders.dreamprvr import DreamPRVR
from holmes.encoders.gmmformer import GMMFormer
from holmes.encoders.gmmformer_v2 import GMMFormerV2
from holmes.encoders.hlformer import HLFormer
from holmes.encoders.model import HolmesModel
from holmes.encoders.ms_sl import MSSL

ENCODERS: dict[str, Callable[[ModelConfig], HolmesModel]] = {
    "mixture": HolmesModel,
    "gmmformer": GMMFormer,
    "ms_sl": MSSL,
    "gmmformer_v2": GMMFormerV2,
    "hlformer": HLFormer,
    "dreamprvr": DreamPRVR,
}


def build_model(config: ModelConfig) -> HolmesModel:
    return ENCODERS[config.encoder](config)
