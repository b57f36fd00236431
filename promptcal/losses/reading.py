"""What loss terms read of the outputs of a model: log-probabilities, logits, text features."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import log_softmax

from promptcal.errors import ConfigError, unknown
from promptcal.precision import wide
from promptcal.types import Outputs

REFERENCE_SCALE = 100.0
"""The logit scale of OpenAI's CLIP, for which published weights and margins were chosen."""

LOGITS = ("logits", "calibrated_logits")
"""What terms on logits can read: the logits as they are, or divided by the instance temperature."""


def log_probabilities(outputs: Outputs) -> Float[Tensor, "b C"]:
    """Log softmax of the calibrated logits, float32 or wider.

    Raises:
        ConfigError: a single class.
    """
    return log_softmax(_several(wide(outputs.calibrated_logits)), dim=1)


def chosen_logits(outputs: Outputs, reads: str, *, rescale: bool) -> Float[Tensor, "b C"]:
    """The logits a term reads, float32 or wider.

    Args:
        outputs: a batch.
        reads: one of ``LOGITS``.
        rescale: multiply by 100/s at the logit scale s, so that constants chosen for a scale of 100 mean the same.

    Raises:
        ConfigError: another word in ``reads``, or a single class.
    """
    if reads not in LOGITS:
        raise ConfigError(unknown("kind of logits", reads, LOGITS))
    logits = _several(wide(outputs.logits if reads == "logits" else outputs.calibrated_logits))
    return logits * (REFERENCE_SCALE / outputs.logit_scale) if rescale else logits


def tuned_texts(outputs: Outputs) -> Float[Tensor, "... C D"]:
    """The tuned text features [C, D], or [b, C, D] where they depend on the image, float32 or wider.

    Raises:
        ConfigError: a single class. MissingField: a model without text.
    """
    text = wide(outputs.require("text_features"))
    if text.shape[-2] < 2:
        raise ConfigError("a term on the class texts needs at least two classes.")
    return text


def _several(logits: Float[Tensor, "b C"]) -> Float[Tensor, "b C"]:
    if logits.shape[1] < 2:
        raise ConfigError("this loss term needs at least two classes: a single class has no runner-up.")
    return logits
