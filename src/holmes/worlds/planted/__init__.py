"""A world with known answers: videos, queries, moments and kinds of query that we chose ourselves."""

from holmes.worlds.planted.generate import PlantSettings, plant
from holmes.worlds.planted.world import Mix

__all__ = ["Mix", "PlantSettings", "plant"]
