"""What the decision of a vision transformer rests on: attention rollout, layer-wise relevance, and their pictures."""

from promptcal.explain.lrp import Relevance, attribution, relevance
from promptcal.explain.recording import Pass, record
from promptcal.explain.rollout import attention_maps, rollout
from promptcal.explain.tokens import foreground_patches, foreground_share, patch_grid, patch_scores, read_tokens

__all__ = [
    "Pass",
    "Relevance",
    "attention_maps",
    "attribution",
    "foreground_patches",
    "foreground_share",
    "patch_grid",
    "patch_scores",
    "read_tokens",
    "record",
    "relevance",
    "rollout",
]
