"""Draw short films that look like somebody's own: a birthday, a holiday, a night in town.

The documentation's pictures of the page show these films, so that no real person's footage is needed.

    python tools/illustrated_films.py FOLDER
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt
import typer
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from holmes.worlds.rendered.film import write_film

WIDTH, HEIGHT, RATE = 640, 360, 8
Colour: TypeAlias = tuple[int, int, int]
Scene: TypeAlias = Callable[[float, np.random.Generator], Image.Image]  # time from 0 to 1 → a picture


def sky(top: Colour, bottom: Colour, horizon: float = 1.0) -> Image.Image:
    """A vertical gradient down to `horizon`."""
    share = np.clip(np.linspace(0, 1, HEIGHT) / horizon, 0, 1)[:, None, None]
    rows = np.asarray(top) * (1 - share) + np.asarray(bottom) * share
    return Image.fromarray(np.broadcast_to(rows, (HEIGHT, WIDTH, 3)).astype(np.uint8).copy())


def glow(
    image: Image.Image, x: float, y: float, radius: float, colour: Colour, strength: float = 1.0
) -> None:
    """Light around a point."""
    reach = round(3 * radius)
    box = (round(x) - reach, round(y) - reach, round(x) + reach, round(y) + reach)
    squares = np.square(np.arange(-reach, reach))
    fall = np.exp(-(squares[:, None] + squares) / (2 * radius**2)) * strength
    light = Image.fromarray((fall[..., None] * np.asarray(colour)).clip(0, 255).astype(np.uint8))
    image.paste(ImageChops.add(image.crop(box), light), box)


def hills(
    image: Image.Image, base: float, height: float, colour: Colour, seed: float, steps: float = 2.0
) -> None:
    x = np.linspace(0, 1, 81)
    y = base - height * (np.sin(steps * 3 * x + seed) * 0.5 + np.sin(steps * 7.3 * x + 2 * seed) * 0.22 + 0.5)
    outline = [(a * WIDTH, b * HEIGHT) for a, b in zip(x, y, strict=True)]
    ImageDraw.Draw(image).polygon([*outline, (WIDTH, HEIGHT), (0, HEIGHT)], fill=colour)


def water(image: Image.Image, top: float, dark: Colour, light: Colour, time: float) -> None:
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, top * HEIGHT, WIDTH, HEIGHT), fill=dark)
    for row in range(26):
        depth = row / 26
        y = top * HEIGHT + (1 - top) * HEIGHT * depth**1.5
        for k in range(9):
            x = (math.sin(row * 12.9 + k * 78.2) * 0.5 + 0.5) * WIDTH + 40 * math.sin(time * 6 + row + k)
            length = 8 + 46 * depth
            draw.line((x - length, y, x + length, y), fill=light, width=1 + round(2 * depth))


def sunset_sea(time: float, rng: np.random.Generator) -> Image.Image:
    image = sky((66, 54, 110), (255, 158, 84), 0.62)
    glow(image, 430, 190 + 20 * time, 60, (255, 220, 150))
    ImageDraw.Draw(image).ellipse((400, 160 + 20 * time, 460, 220 + 20 * time), fill=(255, 236, 190))
    water(image, 0.6, (84, 60, 98), (240, 150, 96), time)
    x, y = 120 + 150 * time, 262 + 4 * math.sin(9 * time)
    draw = ImageDraw.Draw(image)
    draw.polygon([(x - 46, y), (x + 46, y), (x + 30, y + 18), (x - 30, y + 18)], fill=(60, 36, 40))
    draw.line((x, y, x, y - 108), fill=(50, 30, 36), width=3)
    draw.polygon([(x + 4, y - 104), (x + 4, y - 8), (x + 52, y - 8)], fill=(250, 240, 225))
    draw.polygon([(x - 4, y - 92), (x - 4, y - 8), (x - 40, y - 8)], fill=(232, 214, 198))
    return image


def snow_mountain(time: float, rng: np.random.Generator) -> Image.Image:
    image = sky((88, 150, 214), (206, 230, 246), 0.8)
    draw = ImageDraw.Draw(image)
    for left, peak, right, top in ((-80, 150, 380, 70), (230, 440, 760, 40), (60, 300, 560, 120)):
        draw.polygon([(left, 330), (peak, top), (right, 330)], fill=(128, 146, 172))
        draw.polygon(
            [(peak - 46, top + 60), (peak, top), (peak + 50, top + 56), (peak + 16, top + 44)],
            fill=(250, 252, 255),
        )
    draw.polygon([(0, 230), (WIDTH, 310), (WIDTH, HEIGHT), (0, HEIGHT)], fill=(246, 249, 253))
    for k in range(9):
        x, y = 30.0 + 74 * k, 238 + 9.2 * k
        draw.polygon([(x, y - 44), (x - 15, y + 8), (x + 15, y + 8)], fill=(34, 84, 62))
    x, y = 60 + 500 * time, 262 + 62 * time
    draw.line((x - 34, y + 22, x + 36, y + 30), fill=(40, 40, 50), width=4)
    draw.line((x, y, x - 6, y + 22), fill=(28, 40, 80), width=9)
    draw.line((x, y - 26, x, y + 2), fill=(214, 44, 52), width=15)
    draw.line((x, y - 18, x + 24, y + 4), fill=(214, 44, 52), width=6)
    draw.line((x + 24, y + 4, x + 8, y + 32), fill=(60, 60, 70), width=2)
    draw.ellipse((x - 8, y - 44, x + 8, y - 28), fill=(238, 200, 172))
    draw.pieslice((x - 9, y - 46, x + 9, y - 28), 180, 360, fill=(30, 60, 140))
    return image


def balloon(time: float, rng: np.random.Generator) -> Image.Image:
    image = sky((104, 176, 236), (232, 240, 238), 0.75)
    hills(image, 0.8, 0.18, (108, 152, 98), 1.0)
    hills(image, 0.92, 0.16, (132, 172, 84), 4.0, 3)
    draw = ImageDraw.Draw(image)
    for x, y, size in ((180 + 190 * time, 150 - 46 * time, 62), (480 - 30 * time, 120 + 16 * time, 34)):
        for k, colour in enumerate(
            ((226, 66, 54), (250, 186, 62), (54, 116, 186), (226, 66, 54), (250, 186, 62))
        ):
            wide = size * math.cos(math.pi * (k + 0.0) / 5 - math.pi / 2 + 0.32)
            far = size * (1 - 0.4 * k)
            draw.ellipse((x - max(far, wide), y - size, x + max(far, wide), y + size), fill=colour)
        draw.polygon(
            [
                (x - size * 0.62, y + size * 0.76),
                (x + size * 0.62, y + size * 0.76),
                (x + 8, y + size * 1.36),
                (x - 8, y + size * 1.36),
            ],
            fill=(212, 150, 50),
        )
        draw.rectangle((x - 9, y + size * 1.4, x + 9, y + size * 1.4 + 13), fill=(104, 66, 36))
    return image


def birthday_cake(time: float, rng: np.random.Generator) -> Image.Image:
    image = sky((74, 48, 44), (130, 82, 60))
    for k in range(12):
        glow(image, 54 * k + 20, 54 + 16 * math.sin(k), 12, (170, 120, 60), 0.8)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 272, WIDTH, HEIGHT), fill=(122, 78, 50))
    draw.ellipse((170, 276, 470, 336), fill=(240, 238, 234))
    draw.rectangle((206, 206, 434, 300), fill=(246, 196, 206))
    draw.ellipse((206, 276, 434, 324), fill=(246, 196, 206))
    draw.rectangle((206, 236, 434, 262), fill=(126, 70, 48))
    draw.ellipse((206, 182, 434, 230), fill=(255, 246, 240))
    for k in range(13):
        draw.ellipse(
            (202 + 18 * k, 202 + 9 * math.sin(k * 0.26), 222 + 18 * k, 226 + 9 * math.sin(k * 0.26)),
            fill=(255, 246, 240),
        )
    for k in range(7):
        x = 232 + 29 * k
        draw.rectangle(
            (x - 4, 142, x + 4, 202), fill=((70, 150, 210), (250, 210, 80), (120, 190, 110))[k % 3]
        )
        if time < 0.5 + 0.06 * k:
            sway = 3 * math.sin(40 * time + k)
            glow(image, x, 128, 20, (255, 190, 90), 0.4)
            draw.polygon([(x - 6, 138), (x + sway, 112), (x + 6, 138)], fill=(255, 214, 100))
        else:
            for puff in range(5):
                drift = 4 * math.sin(puff + 9 * time + k)
                draw.ellipse(
                    (x + drift - 3, 132 - 9 * puff, x + drift + 4, 138 - 9 * puff), fill=(176, 150, 140)
                )
    return image


def night_city(time: float, rng: np.random.Generator, fireworks: bool = False) -> Image.Image:
    image = sky((10, 14, 38), (48, 46, 92), 0.9)
    draw = ImageDraw.Draw(image)
    fixed = np.random.default_rng(5)
    for _ in range(70):
        x, y = fixed.uniform(0, WIDTH), fixed.uniform(0, 170)
        draw.point((x, y), fill=(230, 230, 250))
    if fireworks:
        for n, (x, y, colour) in enumerate(
            ((180, 90, (255, 120, 90)), (330, 70, (120, 210, 255)), (480, 110, (255, 220, 110)))
        ):
            age = (time * 2.4 + n / 3) % 1
            glow(image, x, y, 30 + 40 * age, colour, 0.5 * (1 - age))
            for ray in range(26):
                for reach in (0.7, 1.0):
                    angle, far = ray * math.tau / 26, 84 * age**0.6 * reach
                    px, py = x + far * math.cos(angle), y + far * math.sin(angle) + 22 * age * age
                    draw.ellipse((px - 2, py - 2, px + 2, py + 2), fill=colour)
    else:
        draw.ellipse((500, 34, 552, 86), fill=(246, 242, 214))
        glow(image, 526, 60, 44, (120, 118, 100))
    x = -10.0
    while x < WIDTH:
        wide, tall = fixed.uniform(38, 74), fixed.uniform(70, 210)
        draw.rectangle((x, 320 - tall, x + wide, HEIGHT), fill=(22, 24, 44))
        for wx in np.arange(x + 6, x + wide - 8, 11):
            for wy in np.arange(326 - tall, 312, 14):
                if fixed.random() < 0.5:
                    draw.rectangle((wx, wy, wx + 5, wy + 7), fill=(252, 216, 130))
        x += wide + fixed.uniform(-2, 6)
    draw.rectangle((0, 320, WIDTH, HEIGHT), fill=(26, 26, 34))
    for k in range(7):
        car = (k * 120 + (260 if k % 2 else -260) * time) % (WIDTH + 80) - 40
        glow(image, car, 340, 9, (255, 90, 70) if k % 2 else (255, 244, 210))
    return image


def fireworks(time: float, rng: np.random.Generator) -> Image.Image:
    return night_city(time, rng, fireworks=True)


def red_car(time: float, rng: np.random.Generator) -> Image.Image:
    image = sky((122, 182, 232), (226, 236, 238), 0.6)
    hills(image, 0.62, 0.2, (150, 166, 140), 2.0 + 0.4 * time)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 214, WIDTH, HEIGHT), fill=(142, 164, 88))
    draw.polygon([(0, 262), (WIDTH, 262), (WIDTH, 334), (0, 334)], fill=(84, 86, 92))
    for k in range(12):
        x = (k * 84 - 560 * time) % (WIDTH + 90) - 60
        draw.rectangle((x, 295, x + 42, 300), fill=(240, 240, 236))
    for k in range(6):
        x = (k * 130 - 300 * time) % (WIDTH + 120) - 60
        draw.rectangle((x - 4, 200, x + 4, 250), fill=(94, 70, 50))
        draw.ellipse((x - 32, 150, x + 32, 220), fill=(66, 116, 58))
    x, y = 150 + 260 * time, 286
    draw.rounded_rectangle((x - 84, y - 26, x + 88, y + 12), 14, fill=(206, 34, 38))
    draw.polygon([(x - 52, y - 24), (x - 30, y - 58), (x + 28, y - 58), (x + 58, y - 24)], fill=(196, 30, 34))
    draw.polygon([(x - 42, y - 26), (x - 26, y - 51), (x - 4, y - 51), (x - 4, y - 26)], fill=(196, 222, 236))
    draw.polygon([(x + 4, y - 26), (x + 4, y - 51), (x + 25, y - 51), (x + 46, y - 26)], fill=(196, 222, 236))
    for wheel in (x - 50, x + 52):
        draw.ellipse((wheel - 20, y - 8, wheel + 20, y + 32), fill=(30, 30, 34))
        draw.ellipse((wheel - 9, y + 3, wheel + 9, y + 21), fill=(190, 192, 198))
    return image


def beach(time: float, rng: np.random.Generator) -> Image.Image:
    image = sky((70, 164, 230), (208, 236, 246), 0.5)
    water(image, 0.46, (32, 150, 178), (150, 222, 226), time)
    draw = ImageDraw.Draw(image)
    edge = [(x, 262 + 8 * math.sin(x / 60 + 6 * time)) for x in range(0, WIDTH + 20, 20)]
    draw.polygon([*edge, (WIDTH, HEIGHT), (0, HEIGHT)], fill=(240, 218, 168))
    for k in range(16):
        x = 520 - 3.4 * k + 0.32 * k * k
        draw.ellipse((x - 9, 296 - 14 * k, x + 9, 318 - 14 * k), fill=(128, 92, 58))
    top_x, top_y = 541, 92
    for k in range(9):
        angle = math.pi * (0.02 + 0.12 * k) + 0.05 * math.sin(7 * time + k)
        tip = (top_x + 104 * math.cos(angle), top_y - 70 * math.sin(angle) + 34 + 30 * abs(math.cos(angle)))
        middle = (top_x + 56 * math.cos(angle), top_y - 62 * math.sin(angle))
        draw.polygon(
            [(top_x, top_y - 5), middle, tip, (middle[0], middle[1] + 16), (top_x, top_y + 6)],
            fill=(40, 132, 66),
        )
    draw.line((210, 190, 232, 318), fill=(240, 240, 240), width=5)
    for k in range(6):
        draw.pieslice(
            (110, 140, 310, 262), 186 + 28 * k, 214 + 28 * k, fill=(226, 70, 66) if k % 2 else (252, 250, 244)
        )
    return image


def train(time: float, rng: np.random.Generator) -> Image.Image:
    image = sky((150, 188, 214), (238, 232, 214), 0.7)
    hills(image, 0.6, 0.26, (136, 150, 150), 0.4)
    hills(image, 0.86, 0.22, (92, 128, 84), 3.2, 3)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 196, WIDTH, 218), fill=(156, 142, 124))
    for k in range(7):
        draw.rectangle((k * 104 - 12, 214, k * 104 + 12, HEIGHT), fill=(146, 132, 114))
        draw.pieslice((k * 104 + 10, 206, k * 104 + 96, 300), 180, 360, fill=(120, 150, 118))
    for k in range(6):
        x = 420 * time - 300 + 104 * k
        colour = (178, 44, 44) if k < 5 else (40, 46, 54)
        draw.rounded_rectangle((x, 150, x + 98, 196), 7, fill=colour)
        for window in range(4):
            draw.rectangle((x + 10 + 21 * window, 160, x + 24 + 21 * window, 176), fill=(226, 236, 240))
        for w in (x + 18, x + 80):
            draw.ellipse((w - 8, 188, w + 8, 204), fill=(40, 40, 44))
    return image


def campfire(time: float, rng: np.random.Generator) -> Image.Image:
    image = sky((12, 18, 44), (40, 52, 84), 0.8)
    draw = ImageDraw.Draw(image)
    fixed = np.random.default_rng(9)
    for _ in range(130):
        x, y = fixed.uniform(0, WIDTH), fixed.uniform(0, 200)
        draw.ellipse((x, y, x + 1.6, y + 1.6), fill=(236, 238, 255))
    for k in range(14):
        x = 50 * k + 8 * math.sin(k * 5)
        draw.polygon([(x, 100 + 30 * math.sin(k * 3)), (x - 34, 262), (x + 34, 262)], fill=(14, 28, 30))
    draw.rectangle((0, 256, WIDTH, HEIGHT), fill=(34, 40, 30))
    draw.polygon([(70, 290), (160, 170), (250, 290)], fill=(224, 136, 56))
    draw.polygon([(160, 170), (140, 290), (182, 290)], fill=(120, 66, 30))
    flicker = rng.uniform(0.85, 1.1)
    glow(image, 410, 270, 90, (190, 96, 30), flicker)
    for k in range(4):
        draw.line((372 + 18 * k, 316, 446 - 18 * k, 290), fill=(84, 54, 34), width=10)
    for size, colour in ((52, (236, 96, 30)), (36, (252, 170, 50)), (18, (255, 236, 150))):
        tip = 410 + rng.uniform(-9, 9)
        draw.polygon(
            [(410 - size * 0.6, 300), (tip, 300 - size * 1.9 * flicker), (410 + size * 0.6, 300)], fill=colour
        )
    return image


def football(time: float, rng: np.random.Generator) -> Image.Image:
    image = sky((120, 184, 232), (222, 236, 240), 0.4)
    draw = ImageDraw.Draw(image)
    for k in range(8):
        shade = (74, 150, 66) if k % 2 else (86, 164, 74)
        draw.polygon(
            [(k * 130 - 200, HEIGHT), (k * 90 - 40, 140), (k * 90 + 50, 140), (k * 130 - 70, HEIGHT)],
            fill=shade,
        )
    draw.rectangle((0, 118, WIDTH, 142), fill=(60, 96, 70))
    for post in (404, 604):
        draw.rectangle((post - 4, 92, post + 4, 218), fill=(250, 250, 250))
    draw.rectangle((400, 88, 608, 97), fill=(250, 250, 250))
    for k in range(1, 12):
        draw.line((404 + k * 17, 96, 404 + k * 17, 216), fill=(214, 222, 224))
        draw.line((404, 96 + k * 10, 604, 96 + k * 10), fill=(214, 222, 224))
    px, leg = 150, 14 * math.sin(12 * min(time, 0.4))
    draw.line((px, 226, px - 12 - leg, 276), fill=(30, 40, 90), width=11)
    draw.line((px, 226, px + 12 + leg, 276), fill=(30, 40, 90), width=11)
    draw.line((px, 172, px, 230), fill=(222, 46, 50), width=26)
    draw.line((px, 182, px + 30, 208), fill=(238, 200, 172), width=8)
    draw.ellipse((px - 13, 144, px + 13, 170), fill=(238, 200, 172))
    draw.pieslice((px - 14, 142, px + 14, 168), 180, 360, fill=(60, 40, 30))
    go = max(0.0, min(1.0, (time - 0.3) / 0.5))
    x, y, size = 190 + 310 * go, 276 - 128 * math.sin(go * 1.9), 13 - 4 * go
    draw.ellipse((x - size, y - size, x + size, y + size), fill=(250, 250, 250), outline=(30, 30, 30))
    draw.regular_polygon((x, y, size * 0.5), 5, rotation=round(400 * go), fill=(30, 30, 30))
    return image


def underwater(time: float, rng: np.random.Generator) -> Image.Image:
    image = sky((60, 176, 214), (10, 58, 110))
    draw = ImageDraw.Draw(image)
    for k in range(5):
        draw.polygon(
            [
                (90 + 120 * k, 0),
                (130 + 120 * k, 0),
                (40 + 120 * k + 30 * math.sin(4 * time + k), HEIGHT),
                (-30 + 120 * k, HEIGHT),
            ],
            fill=(58, 150, 190),
        )
    image.paste(image.filter(ImageFilter.GaussianBlur(16)))
    draw.polygon(
        [(0, 320), (160, 300), (330, 324), (500, 304), (WIDTH, 326), (WIDTH, HEIGHT), (0, HEIGHT)],
        fill=(196, 180, 132),
    )
    for k in range(8):
        x = 50.0 + 80 * k
        for branch in range(5):
            sway = 10 * math.sin(5 * time + branch + k)
            draw.line(
                (x, 326, x - 26 + 13 * branch + sway, 262 + 8 * (k % 3)),
                fill=((232, 108, 96), (120, 180, 80), (226, 160, 70))[k % 3],
                width=7,
            )
    for k in range(9):
        x = (90 * k + (200 + 20 * (k % 3)) * time) % (WIDTH + 120) - 60
        y, size = 60 + 190 * ((k * 0.37) % 1), 17 + 7 * (k % 3)
        colour = ((250, 150, 40), (250, 220, 80), (90, 120, 220))[k % 3]
        draw.polygon(
            [(x - size, y), (x - size * 2, y - size * 0.7), (x - size * 2, y + size * 0.7)], fill=colour
        )
        draw.ellipse((x - size * 1.4, y - size * 0.75, x + size * 1.3, y + size * 0.75), fill=colour)
        draw.rectangle((x - 4, y - size * 0.7, x + 4, y + size * 0.7), fill=(250, 250, 250))
        draw.ellipse((x + size * 0.7, y - 5, x + size * 0.7 + 6, y + 1), fill=(20, 20, 20))
    return image


def cooking(time: float, rng: np.random.Generator) -> Image.Image:
    image = sky((228, 216, 196), (206, 190, 168))
    draw = ImageDraw.Draw(image)
    for left in range(0, WIDTH, 54):
        for top in range(0, 230, 38):
            draw.rectangle((left, top, left + 51, top + 35), fill=(236, 230, 218))
    draw.rectangle((0, 262, WIDTH, HEIGHT), fill=(66, 68, 74))
    draw.ellipse((210, 268, 430, 300), fill=(36, 36, 40))
    for k in range(18):
        draw.line((228 + 11 * k, 290, 228 + 11 * k, 276 - rng.uniform(0, 9)), fill=(80, 140, 250), width=3)
    draw.rounded_rectangle((226, 178, 414, 282), 16, fill=(188, 58, 50))
    draw.ellipse((222, 162, 418, 204), fill=(150, 44, 40))
    draw.ellipse((236, 168, 404, 200), fill=(232, 150, 62))
    for k in range(9):
        a = 5 * time + k * 0.7
        draw.ellipse(
            (
                318 + 66 * math.cos(a) - 9,
                182 + 10 * math.sin(a) - 5,
                318 + 66 * math.cos(a) + 9,
                182 + 10 * math.sin(a) + 6,
            ),
            fill=((90, 150, 60), (214, 60, 46), (248, 214, 130))[k % 3],
        )
    a = 5 * time
    draw.line(
        (320 + 50 * math.cos(a), 184 + 8 * math.sin(a), 392 + 40 * math.cos(a), 58),
        fill=(150, 104, 62),
        width=10,
    )
    draw.line((392 + 40 * math.cos(a), 58, 520, 20), fill=(238, 200, 172), width=26)
    for k in range(6):
        x, y = 276 + 22 * k + 12 * math.sin(5 * time + k), 140 - 70 * ((time * 2 + k * 0.31) % 1)
        glow(image, x, y, 13, (40, 40, 40), 0.7)
    draw.rectangle((206, 206, 228, 220), fill=(60, 40, 36))
    draw.rectangle((412, 206, 434, 220), fill=(60, 40, 36))
    return image


FILMS: dict[str, tuple[Scene, ...]] = {
    "family/birthday 2024.mp4": (cooking, birthday_cake, fireworks),
    "holidays/summer in Greece.mp4": (beach, sunset_sea, underwater),
    "holidays/winter holiday.mp4": (train, snow_mountain, campfire),
    "holidays/road trip.mp4": (red_car, balloon, beach),
    "family/new year.mp4": (night_city, fireworks),
    "outings/saturday match.mp4": (red_car, football),
    "outings/aquarium.mp4": (night_city, underwater),
    "holidays/camping with Tom.mp4": (train, balloon, campfire),
    "holidays/sailing.mp4": (sunset_sea, beach),
    "family/grandma's kitchen.mp4": (cooking,),
    "outings/ski course.mp4": (snow_mountain, cooking),
    "family/evening walk.mp4": (red_car, night_city, sunset_sea),
}


def frames_of(scene: Scene, seconds: float, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """A scene's frames: a slow zoom, soft edges and a little grain, as a camera has them."""
    count = round(seconds * RATE)
    zoom_to = rng.uniform(1.02, 1.1)
    frames = []
    for k in range(count):
        time = k / max(count - 1, 1)
        image = scene(time, rng).filter(ImageFilter.GaussianBlur(0.7))
        zoom = 1 + (zoom_to - 1) * time
        cut_x, cut_y = WIDTH * (1 - 1 / zoom) / 2, HEIGHT * (1 - 1 / zoom) / 2
        image = image.resize(
            (WIDTH, HEIGHT), Image.Resampling.BICUBIC, (cut_x, cut_y, WIDTH - cut_x, HEIGHT - cut_y)
        )
        grain = rng.normal(0, 5, (HEIGHT, WIDTH, 1))
        frames.append((np.asarray(image) + grain).clip(0, 255).astype(np.uint8))
    return np.stack(frames)


def main(out: Annotated[Path, typer.Argument(help="The folder that gets the films.")]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for number, (name, scenes) in enumerate(FILMS.items()):
        rng = np.random.default_rng(number)
        film = np.concatenate([frames_of(scene, rng.uniform(7, 13), rng) for scene in scenes])
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_film(out / name, film, RATE)
        print(out / name)


if __name__ == "__main__":
    typer.run(main)
