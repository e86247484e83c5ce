"""The planted world: generated features with known moments, kinds and fitting videos."""

from holmes.worlds.planted.generate import PlantSettings, plant
from holmes.worlds.planted.world import Mix

__all__ = ["Mix", "PlantSettings", "plant"]
