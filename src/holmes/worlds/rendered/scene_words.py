"""The elements of the rendered world, and their English words."""

from __future__ import annotations

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (222, 40, 38),
    "blue": (36, 84, 224),
    "green": (28, 178, 66),
    "yellow": (248, 222, 38),
    "purple": (152, 52, 196),
    "white": (248, 248, 248),
}
SHAPES: dict[str, tuple[str, ...]] = {
    "circle": ("circle", "ball", "disc"),
    "square": ("square", "box"),
    "triangle": ("triangle",),
    "star": ("star",),
    "cross": ("cross", "plus sign"),
    "heart": ("heart",),
}
BACKGROUNDS: dict[str, tuple[str, ...]] = {
    "sea": ("over the sea", "above the waves"),
    "brick wall": ("in front of a brick wall", "before a wall of bricks"),
    "meadow": ("over a green meadow", "in a field of grass"),
    "night sky": ("in the night sky", "among the stars of the night"),
    "chessboard": ("over a chessboard", "above black and white tiles"),
    "desert": ("in the desert", "over the sand dunes"),
}
MOTIONS: dict[str, tuple[str, ...]] = {
    "left": ("slides to the left", "moves left"),
    "right": ("slides to the right", "moves right"),
    "up": ("rises", "goes up"),
    "down": ("sinks", "falls down"),
    "bounce": ("bounces", "jumps up and down"),
    "spin": ("turns around", "spins"),
}

# What a caption names decides how many videos it fits: all three, two of them, little or nothing.
PRECISE = (
    "a {colour} {shape} {motion} {background}",
    "{background} a {colour} {shape} {motion}",
    "the {shape} that {motion} {background} is {colour}",
)
POLYSEMOUS = (
    "a {colour} {shape} {motion}",
    "there is a {colour} {shape}",
    "something {colour} {motion} {background}",
)
UNDERDETERMINED = (
    "something {motion}",
    "a shape is moving",
    "something can be seen {background}",
    "there is a {shape}",
)
