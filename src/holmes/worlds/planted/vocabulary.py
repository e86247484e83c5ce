"""The words of the planted world: five attributes of events, their values and synonyms.

A line of four values is a family: its members look and sound alike. A slash separates synonyms.
"""

from __future__ import annotations

from dataclasses import dataclass

FAMILY = 4  # values in a family


@dataclass(frozen=True)
class Attribute:
    name: str
    values: tuple[tuple[str, ...], ...]  # per value its synonyms; the first is its name
    generic: tuple[str, ...]  # what a sentence says when it does not tell the value
    visible: float  # how strongly a frame shows it

    def __len__(self) -> int:
        return len(self.values)


def attribute(name: str, visible: float, generic: str, words: str) -> Attribute:
    values = tuple(
        tuple(word.strip().split("/")) for word in words.replace("\n", ",").split(",") if word.strip()
    )
    return Attribute(name, values, tuple(generic.split("/")), visible)


ACTOR = attribute(
    "actor", 1.0, "someone/a person/somebody",
    """woman/lady, man/guy, girl, boy/lad
    chef/cook, gardener, carpenter/joiner, mechanic
    nurse, soldier, firefighter/fireman, pilot
    clown/jester, dancer, guitarist, juggler
    cyclist/biker, swimmer, boxer/fighter, skater
    grandmother/granny, grandfather/grandpa, toddler/baby, student/pupil""",
)  # fmt: skip
ACTION = attribute(
    "action", 1.0, "handles/does something with",
    """lifts/raises, carries/hauls, drops, throws/tosses
    paints/colours, polishes/shines, washes/rinses, dries/wipes
    cuts/slices, breaks/smashes, bends/twists, tears/rips
    opens/unpacks, closes/shuts, wraps/covers, ties/binds
    examines/inspects, photographs/films, measures, draws/sketches
    buys/purchases, sells, steals/grabs, hides/conceals
    pushes/shoves, pulls/drags, kicks, rolls/spins
    repairs/fixes, builds/assembles, decorates, weighs""",
)  # fmt: skip
OBJECT = attribute(
    "object", 1.0, "something/an object/a thing",
    """kettle/teapot, pan, bowl/dish, bottle/flask
    ladder, hammer/mallet, rope/cord, bucket/pail
    bicycle/bike, wheel, motor/engine, saddle
    guitar, drum, violin/fiddle, trumpet
    melon, cake/pie, loaf, pumpkin
    blanket/quilt, coat/jacket, hat/cap, curtain
    chair/stool, table/desk, box/crate, lamp/lantern
    ball, kite, doll/puppet, balloon
    book/novel, map/chart, newspaper, painting/picture
    plant/bush, log, stone/rock, basket/hamper""",
)  # fmt: skip
PLACE = attribute(
    "place", 0.8, "somewhere/",
    """in the kitchen, in the garden/in the yard, in the garage, in the bathroom
    on the beach/on the shore, in the forest/in the woods, by the river, on the hill
    in the street/on the road, at the market, in the park, at the station
    on the stage, in the gym, in the library, in the office""",
)  # fmt: skip
MANNER = attribute(
    "manner", 0.6, "somehow/",
    """slowly, quickly/fast, carefully/gently, roughly
    happily/cheerfully, angrily/furiously, sadly, nervously
    quietly/silently, loudly/noisily, clumsily, skilfully""",
)  # fmt: skip

ATTRIBUTES = (ACTOR, ACTION, OBJECT, PLACE, MANNER)
SIZES = tuple(len(attribute) for attribute in ATTRIBUTES)
