import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from promptcal.data.features import FeatureCache, feature_space, image_features
from promptcal.data.sources import ArrayImages
from promptcal.data.views import Augment, augmented_view, centre_view
from promptcal.errors import DataError, NumericalError
from promptcal.models.clip import ImageTransform


def make_images(n: int, seed: int = 0) -> ArrayImages:
    arrays = np.random.default_rng(seed).integers(0, 256, (n, 12, 15, 3), dtype=np.uint8)
    return ArrayImages(arrays, {f"{seed}/{row}": row for row in range(n)})


@pytest.fixture
def images() -> ArrayImages:
    return make_images(10)


@pytest.fixture
def paths(images) -> list[str]:
    return list(images.rows)


@pytest.fixture
def tower(tiny_clip, monkeypatch) -> list[int]:
    """The batch size of every call of the image tower."""
    calls: list[int] = []
    own = tiny_clip.encode_image

    def counted(pixels, prompts=None):
        calls.append(len(pixels))
        return own(pixels, prompts)

    monkeypatch.setattr(tiny_clip, "encode_image", counted)
    return calls


def plain(clip, pixels: list[torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return clip.model.encode_image(torch.stack(pixels)).float()


def test_features_are_the_towers_own(tiny_clip, images, paths):
    expected = plain(tiny_clip, [centre_view(images.open(path), tiny_clip.transform) for path in paths])
    torch.testing.assert_close(image_features(tiny_clip, images, paths), expected, rtol=1e-5, atol=1e-6)


def test_augmented_features_are_those_of_the_augmented_views(tiny_clip, images, paths):
    augment = Augment(scale=(0.3, 0.9), flip=0.3)
    settings = {"view_seed": 5, "view": 2}
    pixels = [
        augmented_view(images.open(path), tiny_clip.transform, augment, key=images.digest(path), **settings)
        for path in paths
    ]
    ours = image_features(tiny_clip, images, paths, augment=augment, **settings)
    torch.testing.assert_close(ours, plain(tiny_clip, pixels), rtol=1e-5, atol=1e-6)


def test_rows_follow_the_paths_and_repeats_are_encoded_once(tiny_clip, images, paths, tower):
    whole = image_features(tiny_clip, images, paths, batch_size=4)
    assert tower == [4, 4, 4]
    tower.clear()
    picked = image_features(tiny_clip, images, [paths[3], paths[0], paths[3]], batch_size=4)
    assert tower == [4]
    torch.testing.assert_close(picked, whole[[3, 0, 3]], rtol=1e-5, atol=1e-6)
    assert not whole.requires_grad
    assert whole.dtype == torch.float32


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("view", [None, 3])
def test_no_number_depends_on_workers_or_batch_size(tiny_clip, images, paths, workers, view):
    reference = image_features(tiny_clip, images, paths, view=view, workers=1, batch_size=16)
    threads = image_features(tiny_clip, images, paths, view=view, workers=workers, batch_size=16)
    assert torch.equal(threads, reference)
    small = image_features(tiny_clip, images, paths, view=view, workers=workers, batch_size=3)
    torch.testing.assert_close(small, reference, rtol=1e-5, atol=1e-6)


def test_a_filled_cache_never_calls_the_tower(tiny_clip, images, paths, tower, tmp_path):
    cache = FeatureCache(tmp_path)
    first = image_features(tiny_clip, images, paths, cache=cache)
    assert len(tower) == 1
    again = image_features(tiny_clip, images, paths[::-1], cache=cache)
    assert len(tower) == 1
    assert torch.equal(again.flip(0), first)


def test_only_what_the_cache_lacks_is_encoded_and_the_numbers_are_the_same(tiny_clip, images, paths, tower, tmp_path):
    cache = FeatureCache(tmp_path)
    image_features(tiny_clip, images, paths[:7], cache=cache, batch_size=2)
    assert tower == [2] * 4
    tower.clear()
    filled = image_features(tiny_clip, images, paths, cache=cache, batch_size=2)
    assert tower == [2] * 2
    fresh = image_features(tiny_clip, images, paths, batch_size=2)
    torch.testing.assert_close(filled, fresh, rtol=1e-6, atol=1e-6)


def test_images_are_known_by_their_bytes_wherever_they_lie(tiny_clip, images, paths, tower, tmp_path):
    cache = FeatureCache(tmp_path)
    first = image_features(tiny_clip, images, paths, cache=cache)
    moved = ArrayImages(images.arrays, {f"moved/{path}": row for path, row in images.rows.items()})
    assert torch.equal(image_features(tiny_clip, moved, list(moved.rows), cache=cache), first)
    assert len(tower) == 1
    other = make_images(10, seed=1)
    assert not torch.equal(image_features(tiny_clip, other, list(other.rows), cache=cache), first)
    assert len(tower) == 2


@pytest.mark.parametrize(
    "change", [{"view": 1}, {"view_seed": 9}, {"augment": Augment(flip=0.0)}, {"view": None}, {"weights": "other"}]
)
def test_everything_that_decides_a_feature_is_in_the_key(tiny_clip, images, paths, tower, tmp_path, change):
    cache = FeatureCache(tmp_path)
    settings = {"view": 0, "view_seed": 1, "weights": "w", "cache": cache}
    image_features(tiny_clip, images, paths, **settings)
    image_features(tiny_clip, images, paths, **(settings | change))
    assert len(tower) == 2


def test_weights_transform_and_precision_are_in_the_key(tiny_clip, monkeypatch):
    settings = {"view": None, "view_seed": 0, "augment": Augment()}
    first = feature_space(tiny_clip, **settings)
    assert feature_space(tiny_clip, **settings) == first
    assert first["weights"] == tiny_clip.weights_digest()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert feature_space(tiny_clip, **settings)["precision"] != first["precision"]
    monkeypatch.setattr(tiny_clip, "transform", replace(tiny_clip.transform, interpolation="bilinear"))
    assert feature_space(tiny_clip, **settings) != first


def test_the_centre_view_is_shared_whatever_the_augmentation(tiny_clip):
    centre = [feature_space(tiny_clip, view=None, view_seed=seed, augment=Augment(flip=seed / 2)) for seed in (0, 1)]
    assert centre[0] == centre[1]


def test_long_fills_are_kept_shard_by_shard(tiny_clip, images, paths, tmp_path, monkeypatch):
    monkeypatch.setattr("promptcal.data.features.BATCHES_A_SHARD", 2)
    cache = FeatureCache(tmp_path)
    own, broken = images.open, sorted(paths, key=images.digest)[9]

    class Breaking(ArrayImages):
        def open(self, path):
            if path == broken:
                raise DataError(f"{path} is broken")
            return own(path)

    with pytest.raises(DataError, match=f"{broken} is broken"):
        image_features(tiny_clip, Breaking(images.arrays, images.rows), paths, cache=cache, batch_size=2)
    assert cache.size().features == 8
    image_features(tiny_clip, images, paths, cache=cache, batch_size=2)
    assert cache.size().features == 10


def test_features_that_are_not_finite_stop_with_the_images_name(tiny_clip, images, paths, monkeypatch, tmp_path):
    def faulty(pixels, prompts=None):
        features = torch.ones(len(pixels), 32)
        features[1, 3] = torch.nan
        return features

    monkeypatch.setattr(tiny_clip, "encode_image", faulty)
    cache = FeatureCache(tmp_path)
    second = sorted(paths, key=images.digest)[1]
    with pytest.raises(NumericalError, match=f"features of {second} are not finite"):
        image_features(tiny_clip, images, paths, cache=cache)
    assert cache.size().features == 0


def test_no_images_no_work(tiny_clip, images, tower):
    assert image_features(tiny_clip, images, []).shape == (0, 32)
    assert tower == []


def test_a_transform_of_another_size_reaches_the_tower(tiny_clip, images, paths, monkeypatch):
    seen = []

    def corner(pixels, prompts=None):
        seen.append(pixels.shape)
        return pixels[:, 0, :2].flatten(1)

    monkeypatch.setattr(tiny_clip, "transform", ImageTransform(16))
    monkeypatch.setattr(tiny_clip, "encode_image", corner)
    image_features(tiny_clip, images, paths[:2], batch_size=5)
    assert seen == [(5, 3, 16, 16)]


def test_processes_that_lack_the_same_features_encode_them_once(tiny_clip, images, paths, tower, tmp_path, monkeypatch):
    counted = tiny_clip.encode_image

    def slowly(pixels, prompts=None):
        time.sleep(0.05)
        return counted(pixels, prompts)

    monkeypatch.setattr(tiny_clip, "encode_image", slowly)
    found = []

    def worker():
        cache = FeatureCache(tmp_path, name="digits")  # a lock is between handles, so threads stand for processes
        found.append(image_features(tiny_clip, images, paths, cache=cache, batch_size=5))

    threads = [threading.Thread(target=worker) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tower == [5, 5]
    assert all(torch.equal(found[0], other) for other in found[1:])
    assert not list(tmp_path.glob("*.lock"))
