"""Features of the frozen image tower: each image is encoded once in each view, and never again."""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
from typing import TypeVar

import numpy as np
import PIL
import torch
from jaxtyping import Float, Int
from torch import Tensor

from promptcal.console import progress
from promptcal.data.feature_cache import FeatureCache, space_of
from promptcal.data.views import Augment, augmented_view, centre_view
from promptcal.errors import NumericalError
from promptcal.models.clip import FrozenClip
from promptcal.models.image_tokens import PROJECTED, encode_image_token, token_width
from promptcal.types import ImageSource

__all__ = ["FeatureCache", "feature_space", "image_features"]

Item = TypeVar("Item")
Result = TypeVar("Result")

PUBLISHED = Augment()
VIEWS_VERSION = 1
"""Raised when the code that makes views gives other pixels, so that older features are not taken for them."""
BATCHES_A_SHARD = 16


def image_features(
    clip: FrozenClip,
    images: ImageSource,
    paths: Sequence[str],
    *,
    view: int | None = None,
    view_seed: int = 0,
    augment: Augment = PUBLISHED,
    cache: FeatureCache | None = None,
    batch_size: int = 32,
    workers: int | None = None,
    weights: str | None = None,
    quiet: bool = True,
    token: str = PROJECTED,
) -> Float[Tensor, "n D"]:
    """The frozen tower's features of some images, before normalisation; only what the cache lacks is encoded.

    The tower runs on batches of exactly ``batch_size`` images, the last one filled up with zeros, so that a feature
    does not depend on which other images happened to be missing from the cache: with batches of one shape the CPU's
    kernels give the same bits; elsewhere, and between batch sizes, features agree to float32 rounding.

    Args:
        clip: the frozen model.
        images: where the images are.
        paths: which images, in the order of the rows; repeated ones are encoded once.
        view: the number of an augmented view; None is the centre crop.
        view_seed: the seed of the augmented views.
        augment: how they are cropped and flipped.
        cache: where features are kept from run to run; None keeps nothing.
        batch_size: images a pass of the tower.
        workers: threads that read and transform images while the tower works; None chooses. No number depends on it.
        weights: ``clip.weights_digest()`` where the caller has it already.
        quiet: no progress bar.
        token: an embedding of ``SOURCES`` whose columns follow those of the feature; it comes from the same pass and is
            cached under a key of its own. The default, which is the feature itself, adds none.

    Returns:
        Features [n, D] or [n, D + d], float32, on the CPU, without gradient.

    Raises:
        DataError: a missing or broken image, or a cache folder that cannot be written.
        NumericalError: a feature that is not finite; the image is named.
    """
    parts = _parts(clip, token)
    if not paths:
        return torch.zeros(0, parts[-1][1].stop)
    threads = workers or (1 if clip.device.type == "cpu" else min(16, os.cpu_count() or 1))
    found_digests = list(_ahead(images.digest, paths, threads, 4 * threads))
    hexes, first, rows = np.unique(found_digests, return_index=True, return_inverse=True)
    keys = b"".join(hashlib.sha256(digest.encode()).digest() for digest in hexes)
    digests = np.frombuffer(keys, dtype=np.uint8).reshape(len(hexes), -1)
    features = np.zeros((len(hexes), parts[-1][1].stop), dtype=np.float32)
    about = feature_space(clip, view=view, view_seed=view_seed, augment=augment, weights=weights) if cache else {}
    spaces = [{**about, **named} for named, _ in parts]
    known = np.zeros((len(parts), len(hexes)), dtype=bool)

    def recall(missing: Int[np.ndarray, " m"]) -> Int[np.ndarray, " k"]:
        """Take from the cache what it has; returns the rows of which it lacks a part."""
        if cache is None:
            return missing
        for part, (space, (_, columns)) in enumerate(zip(spaces, parts, strict=True)):
            found, values = cache.lookup(space_of(space), digests[missing])
            if found.any():
                features[missing[found], columns] = values
            known[part, missing] = found
        lacking: np.ndarray = missing[~known[:, missing].all(axis=0)]
        return lacking

    def pixels(row: int) -> Float[Tensor, "3 s s"]:
        image = images.open(paths[first[row]])
        if view is None:
            return centre_view(image, clip.transform)
        return augmented_view(image, clip.transform, augment, view_seed=view_seed, key=str(hexes[row]), view=view)

    missing = recall(np.arange(len(hexes)))
    with cache.filling(space_of(spaces[-1])) if cache is not None and len(missing) else nullcontext():
        missing = recall(missing)  # another process may have filled the cache while this one waited for its turn
        label = "image features" if view is None else f"image features, view {view}"
        batches = [missing[start : start + batch_size] for start in range(0, len(missing), batch_size)]
        ready = _ahead(pixels, missing.tolist(), threads, 2 * batch_size)
        pending = 0
        bar = progress(batches, label, total=len(batches), quiet=quiet or not batches)
        for number, batch in enumerate(bar, start=1):
            encoded = _encode(clip, [next(ready) for _ in batch], batch_size, token)
            finite = np.isfinite(encoded).all(axis=1)
            if not finite.all():
                raise NumericalError(
                    f"the features of {paths[first[batch[~finite][0]]]} are not finite; try precision=float32."
                )
            for part, (_, columns) in enumerate(parts):
                new = ~known[part, batch]
                features[batch[new], columns] = encoded[new, columns]
            if cache is not None and (number % BATCHES_A_SHARD == 0 or number == len(batches)):
                written = missing[pending * batch_size : number * batch_size]
                for part, (space, (_, columns)) in enumerate(zip(spaces, parts, strict=True)):
                    new = written[~known[part, written]]
                    if len(new):
                        cache.store(space_of(space), digests[new], features[new, columns], space)
                pending = number
    return torch.from_numpy(features[rows.reshape(-1)])


def feature_space(
    clip: FrozenClip, *, view: int | None, view_seed: int, augment: Augment, weights: str | None = None
) -> dict[str, object]:
    """Everything besides the image that decides a feature: weights, transform, precision, view and augmentation.

    The precision is the dtype of the weights, that of autocast where it is on, and the kind of device.
    """
    device = clip.device.type
    autocast = str(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else "none"
    views = {"view": "centre"} if view is None else {"view": view, "seed": view_seed, "augment": asdict(augment)}
    return {
        "weights": weights or clip.weights_digest(),
        "transform": asdict(clip.transform),
        "precision": [str(_image_dtype(clip)), autocast, device],
        "views": [VIEWS_VERSION, PIL.__version__],
        **views,
    }


def _parts(clip: FrozenClip, token: str) -> list[tuple[dict[str, str], slice]]:
    """What names each part of a row in its cache key, and the columns of the part: the feature, and a further token."""
    width = clip.embed_dim
    own: list[tuple[dict[str, str], slice]] = [({}, slice(0, width))]
    return own if token == PROJECTED else [*own, ({"source": token}, slice(width, width + token_width(clip, token)))]


@torch.no_grad()
def _encode(
    clip: FrozenClip, pixels: Sequence[Float[Tensor, "3 s s"]], batch_size: int, token: str
) -> Float[np.ndarray, "b D"]:
    batch = torch.zeros(batch_size, *pixels[0].shape)
    batch[: len(pixels)] = torch.stack(list(pixels))
    batch = batch.to(clip.device, _image_dtype(clip))
    if token == PROJECTED:
        encoded = clip.encode_image(batch)
    else:
        encoded = torch.cat(encode_image_token(clip, batch, None, token), dim=1)
    result: np.ndarray = encoded[: len(pixels)].float().cpu().numpy()
    return result


def _image_dtype(clip: FrozenClip) -> torch.dtype:
    return next(clip.visual.parameters()).dtype  # type: ignore[no-any-return]


def _ahead(function: Callable[[Item], Result], items: Iterable[Item], threads: int, depth: int) -> Iterator[Result]:
    """The function's results in order, computed by threads at most ``depth`` items ahead of their use."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > depth:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
