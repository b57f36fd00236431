import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from promptcal.data.views import Augment, augmented_view, centre_view, crop_box, view_rng
from promptcal.errors import ConfigError
from promptcal.models.clip import ImageTransform


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("size", [(8, 8), (31, 32), (64, 64), (50, 33), (33, 57), (200, 61), (224, 224), (1, 9)])
@pytest.mark.parametrize("transform", [
    ImageTransform(32),
    ImageTransform(31, interpolation="bilinear"),
    ImageTransform(24, resize="squash", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
])  # fmt: skip
def test_the_centre_view_is_open_clips_evaluation_transform(size, transform):
    from open_clip.transform import image_transform

    theirs = image_transform(
        transform.size,
        is_train=False,
        mean=transform.mean,
        std=transform.std,
        resize_mode=transform.resize,
        interpolation=transform.interpolation,
    )
    image = picture(*size)
    ours = centre_view(image, transform)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs(image), rtol=0, atol=1e-6)


def test_an_unknown_way_to_resize_is_refused():
    with pytest.raises(ConfigError, match="resized by 'longest'"):
        centre_view(picture(8, 8), ImageTransform(8, resize="longest"))


def test_grey_images_have_three_channels():
    assert centre_view(Image.new("L", (9, 9), 128), ImageTransform(8)).shape == (3, 8, 8)
    grey = augmented_view(Image.new("L", (9, 9), 128), ImageTransform(8), Augment(), view_seed=0, key="k", view=0)
    assert grey.shape == (3, 8, 8)


def view(**changes) -> torch.Tensor:
    settings = {"view_seed": 1, "key": "image", "view": 0} | changes
    return augmented_view(picture(40, 30), ImageTransform(16), Augment(), **settings)


def test_a_view_is_the_same_for_the_same_seed_image_and_number():
    first = view()
    torch.manual_seed(3)
    view(view=5)
    assert torch.equal(view(), first)


@pytest.mark.parametrize("changes", [{"view_seed": 2}, {"key": "another"}, {"view": 1}])
def test_a_view_differs_with_each_of_them(changes):
    assert not torch.equal(view(**changes), view())


def test_the_random_stream_is_the_one_that_caches_were_filled_from():
    boxes = [crop_box(100, 200, Augment(), view_rng(1, "image", number)) for number in (0, 1)]
    assert boxes == [(25, 107, 44, 42), (40, 98, 54, 52)]


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 10_000))
def test_crops_lie_inside_and_keep_to_their_ranges(height, width, seed):
    augment = Augment()
    top, left, h, w = crop_box(height, width, augment, np.random.default_rng(seed))
    assert 0 <= top <= height - h
    assert 0 <= left <= width - w
    assert h >= 1
    assert w >= 1
    if min(height, width) >= 50 and max(height, width) / min(height, width) < 2:
        assert 0.07 < h * w / (height * width) <= 1.0
        assert 0.7 < w / h < 1.4


def test_a_strip_gets_the_largest_centre_crop_within_the_ratio():
    assert crop_box(3, 300, Augment(scale=(1.0, 1.0)), np.random.default_rng(0)) == (0, 148, 3, 4)
    assert crop_box(300, 3, Augment(scale=(1.0, 1.0)), np.random.default_rng(0)) == (148, 0, 4, 3)


def test_crops_are_distributed_as_torchvisions():
    from torchvision.transforms import RandomResizedCrop

    height, width, n = 96, 128, 4000
    image = torch.zeros(3, height, width)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    theirs = np.array([RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(n)])
    ours = np.array([crop_box(height, width, Augment(), rng) for _ in range(n)])
    standard_error = theirs.std(axis=0) * np.sqrt(2 / n)
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 4 * standard_error).all()
    assert np.allclose(ours.std(axis=0), theirs.std(axis=0), rtol=0.08)


def test_the_whole_image_unflipped_is_the_squashed_image():
    transform = ImageTransform(16, resize="squash")
    image = picture(24, 24)
    whole = augmented_view(image, transform, Augment((1.0, 1.0), (1.0, 1.0), 0.0), view_seed=0, key="k", view=0)
    torch.testing.assert_close(whole, centre_view(image, transform), rtol=0, atol=1e-6)


def test_flips_come_at_their_rate():
    transform, image = ImageTransform(8, resize="squash"), picture(8, 8)
    plain = centre_view(image, transform)
    for rate, low, high in ((0.0, 0, 0), (0.5, 70, 130), (1.0, 200, 200)):
        augment = Augment((1.0, 1.0), (1.0, 1.0), rate)
        views = [augmented_view(image, transform, augment, view_seed=0, key="k", view=number) for number in range(200)]
        flipped = sum(torch.allclose(seen, plain.flip(-1), atol=1e-6) for seen in views)
        assert low <= flipped <= high
        assert flipped + sum(torch.allclose(seen, plain, atol=1e-6) for seen in views) == 200
