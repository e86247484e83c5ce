"""Suggest up to three searches that a collection answers with high probability."""

from __future__ import annotations

from holmes.index.answer.answers import Answer
from holmes.index.answer.base import SearchIndex

SHOWN = 3
SENTENCES = (
    "a dog runs on the beach",
    "children play in the snow",
    "someone blows out candles on a cake",
    "people dance at a wedding",
    "a car drives through the night",
    "a red car on a country road",
    "waves break on the shore",
    "the sun sets over the sea",
    "a sailing boat on the water",
    "fireworks over a city",
    "a train crosses a bridge",
    "someone cooks in a kitchen",
    "a pot boils on the stove",
    "someone cuts vegetables",
    "a man plays the guitar",
    "someone plays the piano",
    "a band plays on a stage",
    "a crowd claps and cheers",
    "a footballer shoots at the goal",
    "people play basketball",
    "someone rides a bicycle",
    "a horse jumps over a fence",
    "skiers on a mountain",
    "snow falls on a mountain",
    "a campfire at night",
    "a tent in the forest",
    "a hot air balloon in the sky",
    "birds fly over a field",
    "fish swim under water",
    "a diver under water",
    "a cat plays with a toy",
    "a baby crawls on the floor",
    "children in a playground",
    "a family sits around a table",
    "someone opens a present",
    "someone speaks to the camera",
    "a man gives a speech",
    "children in a classroom",
    "someone reads a book",
    "someone draws or paints",
    "hands repair a machine",
    "a person works in a garden",
    "flowers in close-up",
    "rain on a window",
    "a street full of people",
    "lights of a city at night",
    "a market with fruit",
    "a plane takes off",
    "a ship leaves the harbour",
    "a person climbs a rock",
    "runners in a race",
    "swimmers in a pool",
    "a gymnast does a flip",
    "someone lifts weights",
    "someone puts on make-up",
    "a hairdresser cuts hair",
    "a cartoon character speaks",
    "a screen of a video game",
    "a news reader in a studio",
    "an old black and white film",
)


def example_questions(index: SearchIndex) -> list[str]:
    """The sentences answered most surely, each with another video first; searches once with all of them.

    Only sentences whose first hit fits: where none does, or nobody calibrated the model, there is no example.
    """
    if not len(index):
        return []
    fitting = [a for a in index.search_many(SENTENCES, 1) if a.hits and a.hits[0].fit == "fits"]
    surest_of = dict[str, Answer]()  # by the first video
    for answer in sorted(fitting, key=_sureness, reverse=True):
        surest_of.setdefault(answer.hits[0].video, answer)
    return [answer.query for answer in surest_of.values()][:SHOWN]


def _sureness(answer: Answer) -> float:
    return (answer.diagnosis.here or 0.0) * (answer.hits[0].probability or 0.0)
