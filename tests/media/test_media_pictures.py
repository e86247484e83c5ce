"""Pictures for the encoders: their centre, scaled."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image as Pillow

from holmes.media.pictures import square


@pytest.mark.parametrize("height,width", [(48, 64), (90, 61), (224, 399), (719, 1281), (224, 224)])
@pytest.mark.parametrize("side,scaled", [(260, None), (224, 256)])
def test_a_square_is_the_centre_of_the_whole_picture_scaled(
    height: int, width: int, side: int, scaled: int | None
) -> None:
    down, across = np.mgrid[:height, :width]
    picture = np.stack([128 + 100 * np.sin(across / 7), 128 + 100 * np.cos(down / 5), across % 256], axis=-1)
    image = picture.astype(np.uint8)
    scale = (scaled or side) / min(height, width)
    size = (round(width * scale), round(height * scale))
    whole = np.asarray(Pillow.fromarray(image).resize(size, Pillow.Resampling.BICUBIC))
    top, left = (size[1] - side) // 2, (size[0] - side) // 2
    wanted = whole[top : top + side, left : left + side].astype(int)
    found = square(image, side, scaled)
    assert found.shape == (side, side, 3)
    assert np.abs(found - wanted).max() <= 2


STRIPES = """
import resource
import numpy as np
import PIL.Image
from holmes.media.pictures import square
resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2)
stripe = np.arange(8190 * 2 * 3, dtype=np.uint8).reshape(2, 8190, 3)
for image in (stripe, stripe.transpose(1, 0, 2).copy()):
    assert square(image, 260, 280).shape == (260, 260, 3)
"""


def test_pictures_of_extreme_shape_need_no_more_memory() -> None:
    """Scaled as a whole, these would be 280 pixels high and a million wide."""
    assert subprocess.run([sys.executable, "-c", STRIPES], timeout=60).returncode == 0
