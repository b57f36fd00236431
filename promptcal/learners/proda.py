"""ProDA: a distribution of prompts, learned as a collection of contexts at several positions."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.learners.contract import Learner
from promptcal.learners.deep import require_at_least_one
from promptcal.models.clip import FrozenClip
from promptcal.types import Prompts


@register("learner", "proda")
class ProDA(Learner):
    """Prompt distribution learning: K contexts of n tokens, N(0, 0.02²), with the class name at three places.

    The first K // 4 contexts have the name in front, the next K // 4 in the middle, the rest at the end. A training
    step takes ``prompts_per_step`` of them: the next ones of a permutation of all K, which is drawn anew when it is
    used up and at the start of an epoch. Evaluation takes all K and classifies by the mean of their unit features,
    which is not normalised again.

    Args:
        clip: the frozen model, of any kind.
        generator: the random numbers of the initialisation; the permutations follow from one number of it.
        n_prompts: K.
        n_context: n.
        prompts_per_step: prompts of a training step.

    Raises:
        ConfigError: a number below 1, or ``prompts_per_step`` that does not divide ``n_prompts``.

    References:
        Lu, Liu, Zhang, Liu, Tian, "Prompt Distribution Learning", CVPR 2022, arXiv 2205.03340. Its loss is
        ``proda_upper_bound`` with ``proda_orthogonality``. Deviations: a new permutation at the start of an epoch, so
        that a resumed training sees what an undisturbed one sees; float32 throughout.
    """

    learns_text = True
    normalises_mean = False

    def __init__(
        self,
        clip: FrozenClip,
        generator: torch.Generator | None = None,
        n_prompts: int = 32,
        n_context: int = 16,
        prompts_per_step: int = 4,
    ) -> None:
        super().__init__()
        require_at_least_one(n_prompts=n_prompts, n_context=n_context, prompts_per_step=prompts_per_step)
        if n_prompts % prompts_per_step:
            raise ConfigError(
                f"{n_prompts} prompts do not split into parts of {prompts_per_step}; let prompts_per_step divide "
                f"n_prompts."
            )
        self.context = nn.Parameter(0.02 * torch.randn(n_prompts, n_context, clip.text_width, generator=generator))
        self.prompts_per_step = prompts_per_step
        self._seed = int(torch.randint(2**62, (), generator=generator))
        self.begin_epoch(0)

    def begin_epoch(self, epoch: int) -> None:
        """Draw the permutations of this epoch from its own generator."""
        self._order = torch.Generator().manual_seed(self._seed + epoch)
        self._left = torch.zeros(0, dtype=torch.long)

    def _next(self) -> Int[Tensor, " p"]:
        """The prompts of the next training step, in the order of their numbers."""
        if not len(self._left):
            self._left = torch.randperm(len(self.context), generator=self._order)
        chosen, self._left = self._left.tensor_split([self.prompts_per_step])
        return chosen.sort().values

    def forward(
        self, image_features: Float[Tensor, "b D"] | None, class_features: Float[Tensor, "C D"] | None = None
    ) -> Prompts:
        """The prompts of this step in training, all of them in evaluation."""
        del image_features, class_features
        chosen = self._next() if self.training else torch.arange(len(self.context))
        quarter = len(self.context) // 4
        groups = {"front": chosen < quarter, "middle": (chosen >= quarter) & (chosen < 2 * quarter)}
        groups["end"] = chosen >= 2 * quarter
        parts = [
            Prompts(text=self.context[chosen[mask]][None, :, None], position=position)
            for position, mask in groups.items()
            if bool(mask.any())
        ]
        return replace(parts[0], beside=tuple(parts[1:]))

    def nameless(self) -> Prompts:
        """All prompts; without a class name their positions are one."""
        return Prompts(text=self.context[None, :, None])
