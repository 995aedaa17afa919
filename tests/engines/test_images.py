import base64
import io

import pytest
from PIL import Image as PILImage

from mai_plugin.core.records import Image
from mai_plugin.engines.images import data_url, pixel_digest


def test_the_digest_is_that_of_the_pixels():
    red = PILImage.new("RGB", (4, 2), "red")
    assert pixel_digest(Image(red)) == pixel_digest(Image(red.copy()))
    others = [PILImage.new("RGB", (2, 4), "red"), PILImage.new("RGB", (4, 2), "blue"), red.convert("RGBA")]
    assert len({pixel_digest(Image(image)) for image in (red, *others)}) == 4


@pytest.mark.parametrize("format", ["png", "jpeg"])
def test_a_data_url_decodes_to_the_image(format):
    image = PILImage.effect_noise((32, 16), 80).convert("RGB")
    head, _, data = data_url(Image(image), format).partition(",")
    assert head == f"data:image/{format};base64"
    decoded = PILImage.open(io.BytesIO(base64.b64decode(data)))
    assert decoded.size == image.size
    assert (decoded.tobytes() == image.tobytes()) == (format == "png")


def test_an_image_is_encoded_once():
    image = Image(PILImage.new("RGB", (4, 4)))
    first = data_url(image, "png"), pixel_digest(image)
    image.data.paste("white", (0, 0, 4, 4))
    assert (data_url(image, "png"), pixel_digest(image)) == first
