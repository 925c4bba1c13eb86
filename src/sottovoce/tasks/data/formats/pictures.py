"""Decoding one picture file of a known form and size with Pillow (which Matplotlib brings along)."""

from __future__ import annotations

import warnings
from typing import BinaryIO, Literal

import numpy as np

from sottovoce.tasks.data.arrays import Pixels
from sottovoce.tasks.data.formats.reading import malformed


def decode(stream: BinaryIO, form: Literal["PNG", "JPEG"], size: tuple[int, int], origin: str) -> Pixels:
    """The pixels ``[height, width, 3]`` of a picture that must be of this form and ``size`` (width, height).

    Form and size are checked before anything is decoded. A grey picture has its value in all three channels.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(stream, formats=[form]) as picture:
                if picture.size != size:
                    raise malformed(origin, f"a picture of {picture.size} pixels, where {size} is needed")
                return np.asarray(picture.convert("RGB"), dtype=np.uint8)
    except (OSError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise malformed(origin, f"it cannot be read as {form} ({error})") from error
