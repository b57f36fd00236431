"""Where a frozen CLIP comes from: the embedded one, or open_clip's models with pretrained or local weights."""

import pickle
import warnings
from pathlib import Path
from typing import Any

from promptcal.config import asset_path
from promptcal.errors import ConfigError, unknown
from promptcal.models.clip import FrozenClip, ImageTransform


def embedded(name: str = "mini") -> FrozenClip:
    """The small CLIP that ships with promptcal: no download, a few MB, trained on drawn images only."""
    from open_clip.tokenizer import SimpleTokenizer

    from promptcal.models.embedded import load_embedded, read_meta

    weights = asset_path("assets", "mini_clip.safetensors")
    model, meta = load_embedded(weights), read_meta(weights)
    transform = ImageTransform(int(meta["image_size"]), tuple(meta["image_mean"]), tuple(meta["image_std"]))
    return FrozenClip(model, SimpleTokenizer(context_length=model.context_length), transform, name)


def open_clip_model(
    architecture: str,
    pretrained: str | None = None,
    weights: str | None = None,
    download: bool = False,
    name: str | None = None,
) -> FrozenClip:
    """An open_clip model by architecture, float32 and frozen.

    Args:
        architecture: open_clip's name, such as ``ViT-B-16-quickgelu``.
        pretrained: open_clip's tag, such as ``openai``; ``random`` gives seeded random weights, for tests of the line.
        weights: a local weights file, instead of the tag's own.
        download: allow open_clip to fetch the tag's weights when they are not in its cache.
        name: what to call the model in messages and run folders.

    Raises:
        ConfigError: an unknown architecture or tag, an activation that differs from the one the weights were trained
            with (OpenAI's weights need a ``-quickgelu`` architecture), or weights that are not there.
    """
    import open_clip
    import torch

    known = open_clip.list_models()
    if architecture not in known:
        raise ConfigError(unknown("architecture", architecture, known))
    if pretrained is None and weights is None:
        raise ConfigError(f"'{architecture}' needs weights: give model.pretrained=TAG or model.weights=FILE.")
    if weights is not None and not Path(weights).is_file():
        raise ConfigError(f"there is no weights file {weights}; give an existing file as model.weights=FILE.")
    tag = None if pretrained == "random" else pretrained
    settings: dict[str, Any] = {}
    source = weights
    if tag is not None:
        settings = _tag_settings(open_clip, architecture, tag)
        source = weights or _cached_file(settings) or (tag if download else None)
        if source is None:
            raise ConfigError(
                f"the weights '{tag}' of '{architecture}' are not in open_clip's cache; add model.download=true to "
                f"fetch them, or give a local file as model.weights=FILE."
            )
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="QuickGELU mismatch")
        torch.manual_seed(0)
        try:
            model = open_clip.create_model(
                architecture, pretrained=source or "", precision="fp32", device="cpu", pretrained_text=False
            )
        except (RuntimeError, OSError, ValueError, pickle.UnpicklingError, UserWarning) as error:
            what = f"the tag '{tag}'" if source == tag else f"the file {source}"
            raise ConfigError(
                f"{what} does not load into '{architecture}': {str(error).splitlines()[0]}; choose the architecture "
                f"the weights were trained with."
            ) from error
    return FrozenClip(model, open_clip.get_tokenizer(architecture), _transform(model, settings), name or architecture)


def _tag_settings(open_clip: Any, architecture: str, tag: str) -> dict[str, Any]:
    """The settings of a pretrained tag; the activation of the architecture must be the one it was trained with."""
    tags = open_clip.list_pretrained_tags_by_model(architecture)
    if tag not in tags:
        raise ConfigError(unknown(f"pretrained tag of '{architecture}'", tag, tags))
    settings: dict[str, Any] = open_clip.get_pretrained_cfg(architecture, tag)
    wanted = bool(settings.get("quick_gelu", False))
    if wanted != bool((open_clip.get_model_config(architecture) or {}).get("quick_gelu", False)):
        other = f"{architecture}-quickgelu" if wanted else architecture.removesuffix("-quickgelu")
        raise ConfigError(
            f"the weights '{tag}' were trained {'with' if wanted else 'without'} quickgelu, '{architecture}' is built "
            f"{'without' if wanted else 'with'} it; use model.architecture={other}."
        )
    return settings


def _cached_file(settings: dict[str, Any]) -> str | None:
    """The tag's weights file where an earlier download left it, found without the network."""
    from huggingface_hub import try_to_load_from_cache

    url = settings.get("url", "")
    if url and (archive := Path.home() / ".cache" / "clip" / Path(url).name).is_file():
        return str(archive)
    repository = str(settings.get("hf_hub", "")).rstrip("/")
    for file in ("open_clip_model.safetensors", "open_clip_pytorch_model.bin") if repository else ():
        if isinstance(found := try_to_load_from_cache(repository, file), str):
            return found
    return None


def _transform(model: Any, settings: dict[str, Any]) -> ImageTransform:
    """The image transform the model was trained with."""
    size = model.visual.image_size
    side = int(size[0] if isinstance(size, tuple | list) else size)
    chosen: dict[str, Any] = {key: tuple(settings[key]) for key in ("mean", "std") if settings.get(key)}
    for key, ours in (("interpolation", "interpolation"), ("resize_mode", "resize")):
        if settings.get(key):
            chosen[ours] = settings[key]
    return ImageTransform(side, **chosen)
