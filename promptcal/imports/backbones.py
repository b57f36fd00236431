"""Which CLIP a checkpoint was trained on, as far as the widths of its tensors tell."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from promptcal.config import asset_path, options
from promptcal.errors import ConfigError
from promptcal.imports.fitting import Fitted
from promptcal.imports.torch_files import StoredTensor
from promptcal.models.clip import FrozenClip

WORDS = {"d": "text tokens", "D": "the joint embedding", "w": "image tokens"}
"""The letters of a shape that a CLIP decides."""


@dataclass(frozen=True)
class Widths:
    """The widths of a CLIP: of text tokens, of the joint embedding, of image tokens (None = it has none), its patch."""

    text: int
    joint: int
    image: int | None
    patch: int | None

    def agree(self, sizes: Mapping[str, int], patch: int | None) -> bool:
        """Whether the sizes of a checkpoint can be of this CLIP."""
        own = {"d": self.text, "D": self.joint, "w": self.image}
        return all(sizes.get(letter, size) == size for letter, size in own.items()) and patch in (None, self.patch)


def widths_of_recipe(name: str) -> Widths | None:
    """The widths of a recipe of an open_clip model, without building it; None for other recipes."""
    import open_clip

    recipe: Any = OmegaConf.load(asset_path("configs", "model", f"{name}.yaml"))
    settings = open_clip.get_model_config(recipe.get("architecture") or "")
    if settings is None:
        return None
    vision, text = settings["vision_cfg"], settings["text_cfg"]
    tokens = isinstance(vision.get("layers"), int) and "patch_size" in vision
    return Widths(
        int(text["width"]),
        int(settings["embed_dim"]),
        int(vision["width"]) if tokens else None,
        int(vision["patch_size"]) if tokens else None,
    )


def guess_model(fitted: Fitted, tensors: Mapping[str, StoredTensor], where: str) -> str:
    """The only recipe of a CLIP whose widths are those of a checkpoint.

    Raises:
        ConfigError: none or several have them; they are listed.
    """
    kernel = tensors.get("image_encoder.conv1.weight")
    patch = kernel.shape[-1] if kernel is not None and len(kernel.shape) == 4 else None
    known = {name: widths for name in options("model") if (widths := widths_of_recipe(name)) is not None}
    found = [name for name, widths in known.items() if widths.agree(fitted.sizes, patch)]
    if len(found) == 1:
        return found[0]
    seen = ", ".join(f"{fitted.sizes[key]} for {word}" for key, word in WORDS.items() if key in fitted.sizes)
    if found:
        raise ConfigError(
            f"{where} has a width of {seen}, as {', '.join(found)} have, and no folder says which it was; add --model "
            f"NAME."
        )
    raise ConfigError(f"{where} has a width of {seen}, as no CLIP of promptcal's recipes has; add --model NAME.")


def check_widths(fitted: Fitted, clip: FrozenClip, config: DictConfig, where: str) -> None:
    """Refuse a checkpoint of another CLIP.

    Raises:
        ConfigError: names the width of both.
    """
    own = {"d": clip.text_width, "D": clip.embed_dim}
    if "w" in fitted.sizes:
        own["w"] = clip.image_width
    for letter, size in own.items():
        if fitted.sizes.get(letter, size) != size:
            raise ConfigError(
                f"{where} has a width of {fitted.sizes[letter]} for {WORDS[letter]}, the model "
                f"'{config.choices.model}' has {size}; choose the model it was trained on with --model NAME."
            )
