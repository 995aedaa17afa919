"""What engines and the call store need of an image, worked out once per image however many calls share it."""

from __future__ import annotations

import base64
import hashlib
import io
import threading
from collections.abc import Callable
from typing import Literal

from mai_plugin.core.records import Image

ImageFormat = Literal["png", "jpeg"]


def pixel_digest(image: Image) -> str:
    """A digest of the pixels, their mode and size (SHA-256, hex): equal for equal pixels, whatever file held them."""

    def make() -> str:
        digest = hashlib.sha256(f"{image.data.mode} {image.data.size} ".encode())
        digest.update(image.data.tobytes())
        return digest.hexdigest()

    return _once(image, "pixel_digest", make)


def digested(digest: str) -> Image:
    """An image of which only the digest of its pixels is known, as the call store has it."""
    image = Image(None)
    image.__dict__["pixel_digest"] = digest
    return image


def data_url(image: Image, format: ImageFormat = "png") -> str:
    """The image as a `data:` URL.  PNG keeps the pixels; JPEG (quality 95) is smaller and changes them a little."""

    def make() -> str:
        buffer = io.BytesIO()
        options = {"quality": 95} if format == "jpeg" else {"compress_level": 1}
        image.data.save(buffer, format=format.upper(), **options)
        return f"data:image/{format};base64,{base64.b64encode(buffer.getvalue()).decode()}"

    return _once(image, f"data_url_{format}", make)


def _once(image: Image, name: str, make: Callable[[], str]) -> str:
    """`make()` on the first call for this image object, remembered on it: it is gone when the image is."""
    memory = image.__dict__
    with memory.setdefault("_lock", threading.Lock()):
        if name not in memory:
            memory[name] = make()
        value: str = memory[name]
        return value
