"""The nearest words of learned tokens."""

import pytest
import torch
from torch import nn

from promptcal.learners.coop import CoOp
from promptcal.learners.zero_shot import ZeroShot
from promptcal.words import MOST_TOKENS, nearest_words, word_record


def test_a_context_of_words_is_nearest_to_its_words(tiny_clip):
    found = nearest_words(tiny_clip, tiny_clip.embed_words("a photo of a"))
    assert [near[0] for near in found] == [("a", 0.0), ("photo", 0.0), ("of", 0.0), ("a", 0.0)]
    assert all(len(near) == 3 and near[0][1] <= near[1][1] <= near[2][1] for near in found)


def test_distances_are_euclidean(tiny_clip):
    table = tiny_clip.text.token_embedding.weight.detach()
    token = torch.full((1, tiny_clip.text_width), 0.01)
    expected = (table - token).norm(dim=1).sort().values[:3]
    found = [distance for _, distance in nearest_words(tiny_clip, token)[0]]
    assert found == pytest.approx(expected.tolist(), abs=2e-4)


def test_the_record_holds_what_stands_for_words_and_no_more(tiny_clip):
    assert word_record(tiny_clip, ZeroShot()) == {}
    learner = CoOp(tiny_clip, init="a photo of a")
    assert [near[0][0] for near in word_record(tiny_clip, learner)["context"]] == ["a", "photo", "of", "a"]
    learner.context = nn.Parameter(torch.zeros(20, 4, tiny_clip.text_width))
    assert len(word_record(tiny_clip, learner)["context"]) == MOST_TOKENS
