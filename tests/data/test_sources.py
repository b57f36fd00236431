import hashlib
import io
import os
import pickle

import numpy as np
import pytest
from PIL import Image

from promptcal.data.sources import ArrayImages, DrawnImages, FolderImages
from promptcal.errors import DataError


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "1", "CMYK", "I;16"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    image = Image.new("RGB", (6, 4), (200, 30, 90))
    grey = image.convert("L")
    if mode == "I;16":
        Image.fromarray(np.asarray(grey).astype(np.uint16) * 256).save(tmp_path / "x.png")
    else:
        image.convert(mode).save(tmp_path / ("x.tif" if mode == "CMYK" else "x.png"))
    name = "x.tif" if mode == "CMYK" else "x.png"
    opened = FolderImages(tmp_path).open(name)
    assert opened.mode == "RGB"
    assert opened.size == (6, 4)
    if mode == "I;16":
        assert abs(int(np.asarray(opened)[0, 0, 0]) - grey.getpixel((0, 0))) <= 1


def test_a_digest_is_that_of_the_bytes_and_follows_a_change(tmp_path):
    file = tmp_path / "a" / "x.png"
    file.parent.mkdir()
    Image.new("RGB", (4, 4), "red").save(file)
    images = FolderImages(tmp_path)
    first = images.digest("a/x.png")
    assert first == hashlib.sha256(file.read_bytes()).hexdigest() == images.digest("a/x.png")
    Image.new("RGB", (4, 4), "blue").save(file)
    os.utime(file, ns=(1, 1))
    assert images.digest("a/x.png") == hashlib.sha256(file.read_bytes()).hexdigest() != first


@pytest.mark.parametrize("method", ["open", "digest"])
def test_a_missing_image_is_named(tmp_path, method):
    with pytest.raises(DataError, match=r"there is no image .*gone\.png"):
        getattr(FolderImages(tmp_path), method)("gone.png")


def test_broken_images_are_named(tmp_path):
    content = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(content, "PNG")
    for name, data in (("half.png", content.getvalue()[:3000]), ("text.jpg", b"no image"), ("empty.png", b"")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=rf"{name} is broken"):
            FolderImages(tmp_path).open(name)


def test_floating_point_pixels_are_refused(tmp_path):
    Image.fromarray(np.zeros((4, 4), np.float32)).save(tmp_path / "x.tif")
    with pytest.raises(DataError, match=r"x\.tif is broken \(floating-point"):
        FolderImages(tmp_path).open("x.tif")


def test_a_folder_in_place_of_an_image(tmp_path):
    (tmp_path / "x.png").mkdir()
    with pytest.raises(DataError, match=r"x\.png cannot be read"):
        FolderImages(tmp_path).open("x.png")


def test_arrays_in_memory():
    arrays = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    images = ArrayImages(arrays, {"a": 0, "b": 1})
    assert np.array_equal(np.asarray(images.open("b"))[..., 2], arrays[1])
    assert images.digest("a") != images.digest("b")
    assert images.digest("a") != ArrayImages(arrays.reshape(2, 9, 1), {"a": 0}).digest("a")
    with pytest.raises(DataError, match="no image 'c'"):
        images.open("c")


def paint(path: str) -> Image.Image:
    return Image.new("L", (4, 4), len(path))


def test_drawn_images():
    images = DrawnImages(paint, "rule 1")
    assert images.open("abc").mode == "RGB"
    assert images.open("abc").getpixel((0, 0)) == (3, 3, 3)
    assert images.digest("abc") == DrawnImages(paint, "rule 1").digest("abc")
    assert len({images.digest("abc"), images.digest("abd"), DrawnImages(paint, "rule 2").digest("abc")}) == 3


def test_sources_travel_to_other_processes(tmp_path):
    Image.new("RGB", (4, 4), "red").save(tmp_path / "x.png")
    for images, path in (
        (FolderImages(tmp_path), "x.png"),
        (ArrayImages(np.zeros((1, 2, 2), np.uint8), {"x": 0}), "x"),
        (DrawnImages(paint, "rule"), "x"),
    ):
        again = pickle.loads(pickle.dumps(images))
        assert again.digest(path) == images.digest(path)
        assert again.open(path).tobytes() == images.open(path).tobytes()
