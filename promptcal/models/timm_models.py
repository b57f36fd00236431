"""Where an image classifier of timm comes from: random, a hub's weights, or a local file."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from promptcal.errors import ConfigError, unknown
from promptcal.models.clip import ImageTransform
from promptcal.models.vision import VisionModel

NAMES = ("model.safetensors", "pytorch_model.bin")
"""What a hub calls a weights file."""


def timm_model(
    architecture: str,
    pretrained: bool = False,
    weights: str | None = None,
    download: bool = False,
    options: Mapping[str, Any] | None = None,
    size: int | None = None,
    name: str | None = None,
) -> VisionModel:
    """A model of timm by architecture; its last layer is new unless the weights were made for as many classes.

    The image transform is that of the weights, with one difference from timm's own evaluation: the whole image is
    resized, where timm resizes to size / crop_pct and cuts the centre out.

    Args:
        architecture: timm's name, such as ``vit_base_patch16_224`` or ``swin_small_patch4_window7_224``.
        pretrained: start from timm's weights of that architecture: from its cache, or fetched with ``download``.
        weights: a local weights file instead, or the folder of a finished run that trained this architecture.
        download: allow timm to fetch the weights.
        options: arguments of the architecture, such as ``{depth: 4, embed_dim: 64}``.
        size: side of the images in pixels; None = the architecture's own.
        name: what to call the model in messages and run folders.

    Raises:
        ConfigError: an unknown architecture, weights that are not there or that do not fit.
    """
    import timm

    if not timm.is_model(architecture):
        raise ConfigError(unknown("architecture", architecture, timm.list_models()))
    about: Any = timm.get_pretrained_cfg(architecture)
    settings = dict(options or {})
    if size is not None and about.fixed_input_size:
        settings["img_size"] = size
    file = _weights_file(architecture, about, pretrained, weights, download)
    overlay: dict[str, Any] | None = None
    if file is not None:
        tensors, trained_here = _tensors(file)
        overlay = {"state_dict": tensors} if trained_here else {"file": str(file)}
        overlay |= {"custom_load": False, "num_classes": _classes_of(tensors, about)}

    def make(n_classes: int) -> nn.Module:
        stored = n_classes if overlay is None else overlay["num_classes"]
        try:
            made: Any = timm.create_model(
                architecture,
                pretrained=overlay is not None,
                pretrained_cfg_overlay=overlay,
                num_classes=stored,  # as in the file, so that timm loads it strictly
                **settings,
            )
        except (RuntimeError, TypeError, ValueError, OSError, AssertionError) as error:
            what = f"the weights {file} do not fit '{architecture}'" if file else f"'{architecture}' cannot be built"
            raise ConfigError(f"{what}: {str(error).splitlines()[0]}") from error
        if stored != n_classes:
            made.reset_classifier(n_classes)
        return made  # type: ignore[no-any-return]

    transform = ImageTransform(
        size or int(about.input_size[-1]),
        mean=tuple(about.mean),
        std=tuple(about.std),
        interpolation="bilinear" if about.interpolation == "bilinear" else "bicubic",
        resize="shortest",
    )
    digest = "random" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()
    made_for = None if overlay is None else int(overlay["num_classes"])
    return VisionModel(make, transform, name or architecture, digest, made_for)


def _weights_file(architecture: str, about: Any, pretrained: bool, weights: str | None, download: bool) -> Path | None:
    """The weights file to start from: a local one, that of the hub's cache, or one fetched now; None = random."""
    if weights is not None:
        run = Path(weights) / "learner.safetensors"
        given = run if run.is_file() else Path(weights)
        if not given.is_file():
            raise ConfigError(f"there is no weights file or run {weights}; give an existing one as model.weights=FILE.")
        return given
    if not pretrained:
        return None
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError

    if not about.hf_hub_id:
        raise ConfigError(f"timm names no hub for '{architecture}'; give a local file as model.weights=FILE.")
    for file in NAMES:
        if isinstance(found := try_to_load_from_cache(about.hf_hub_id, file), str):
            return Path(found)
    if not download:
        raise ConfigError(
            f"the weights of '{architecture}' are not in the hub's cache; add model.download=true to fetch them, or "
            f"give a local file as model.weights=FILE."
        )
    for file in NAMES:
        with suppress(EntryNotFoundError):
            return Path(hf_hub_download(about.hf_hub_id, file))
    raise ConfigError(f"the hub has none of {', '.join(NAMES)} for '{architecture}'; give model.weights=FILE.")


def _tensors(file: Path) -> tuple[dict[str, Tensor], bool]:
    """The weights in a file, and whether a run learned them: then they are those of its backbone, by timm's names."""
    from timm.models import load_state_dict

    try:
        tensors: dict[str, Tensor] = load_state_dict(str(file))
    except Exception as error:
        raise ConfigError(f"{file} is not a weights file that timm can read ({str(error).splitlines()[0]}).") from error
    own = {name.removeprefix("backbone."): value for name, value in tensors.items() if name.startswith("backbone.")}
    return own or tensors, bool(own)


def _classes_of(tensors: Mapping[str, Tensor], about: Any) -> int:
    """How many classes some weights were made for: the rows of their last layer, 0 without one."""
    layers = (about.classifier,) if isinstance(about.classifier, str) else tuple(about.classifier or ())
    rows = [len(tensors[f"{layer}.weight"]) for layer in layers if f"{layer}.weight" in tensors]
    return rows[0] if rows else 0
