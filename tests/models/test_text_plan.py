import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from promptcal.errors import ConfigError, DataError
from promptcal.models.text_plan import Tokens, plan
from promptcal.types import Prompts

WORDS = {"of": 1, "a": 2, "dog": 3, "cat": 4, "big": 5, ".": 6}
TOKENS = Tokens(lambda text: [WORDS[word] for word in text.replace(".", " .").split()], 8, 9, 12)


@pytest.mark.parametrize(
    ("position", "ids", "context"),
    [
        ("end", [8, 0, 0, 0, 5, 3, 6, 9, 0, 0, 0, 0], [1, 2, 3]),
        ("middle", [8, 0, 5, 3, 0, 0, 6, 9, 0, 0, 0, 0], [1, 4, 5]),
        ("front", [8, 5, 3, 0, 0, 0, 6, 9, 0, 0, 0, 0], [3, 4, 5]),
    ],
)
def test_layout_of_each_position(position, ids, context):
    layout = plan(["big dog"], 3, TOKENS, position=position)
    assert layout.ids.tolist() == [ids]
    assert layout.context.tolist() == [context]
    assert layout.eot.tolist() == [7]


def test_fixed_words_stand_between_context_and_name():
    layout = plan(["dog", "big cat"], 2, TOKENS, tail="of a {}.")
    assert layout.ids[0].tolist() == [8, 0, 0, 1, 2, 3, 6, 9, 0, 0, 0, 0]
    assert layout.ids[1].tolist() == [8, 0, 0, 1, 2, 5, 4, 6, 9, 0, 0, 0]


@given(
    names=st.lists(st.lists(st.sampled_from(["dog", "cat", "big"]), min_size=1, max_size=4), min_size=1, max_size=5),
    n=st.integers(0, 3),
    position=st.sampled_from(["end", "middle", "front"]),
    tail=st.sampled_from(["{}", "{}.", "a {}."]),
)
@settings(deadline=None)
def test_without_its_context_a_row_is_the_tokenised_text(names, n, position, tail):
    names = [" ".join(name) for name in names]
    layout = plan(names, n, TOKENS, position=position, tail=tail)
    for row, places, eot, name in zip(layout.ids, layout.context, layout.eot, names, strict=True):
        assert len(set(places.tolist())) == n
        assert not row[places].any()
        assert row[eot] == TOKENS.end
        assert not row[eot + 1 :].any()
        assert np.delete(row, places)[: eot + 1 - n].tolist() == [8, *TOKENS.encode(tail.format(name)), 9]


def test_a_name_that_does_not_fit_is_named_with_the_room_there_is():
    assert plan(["dog cat"], 7, TOKENS).eot.tolist() == [11]
    with pytest.raises(DataError, match=r"'big dog cat' takes 4 tokens.*but 3 are left of the model's 12"):
        plan(["dog", "big dog cat"], 7, TOKENS)


def test_unusable_input_is_refused():
    with pytest.raises(ConfigError, match=r"unknown position 'start'.*end, middle, front"):
        plan(["dog"], 2, TOKENS, position="start")
    with pytest.raises(ConfigError, match=r"no '\{\}'"):
        plan(["dog"], 2, TOKENS, tail="a dog")
    with pytest.raises(DataError, match="empty"):
        plan(["dog", " "], 2, TOKENS)


def tokens(*shape):
    return torch.zeros(*shape, 4)


def test_prompts_are_counted_and_broadcast():
    layout = plan(["dog", "cat"], 3, TOKENS)
    assert layout.groups(Prompts(text=tokens(5, 1, 1, 3), text_deep={1: tokens(1, 2, 2, 3)})) == (5, 2)


@pytest.mark.parametrize(
    ("prompts", "sentence"),
    [
        (Prompts(), "no text context"),
        (Prompts(text=tokens(1, 1, 1, 2)), "the text context has shape"),
        (Prompts(text=tokens(1, 1, 3, 3)), "2 classes or 1, 3 tokens"),
        (Prompts(text=tokens(1, 1, 1, 3), text_deep={4: tokens(1, 1, 1, 1)}), "deep text prompt of block 4"),
        (Prompts(text=tokens(2, 1, 1, 3), text_deep={1: tokens(3, 1, 1, 3)}), "the text prompts disagree"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(prompts, sentence):
    with pytest.raises(ConfigError, match=sentence):
        plan(["dog", "cat"], 3, TOKENS).groups(prompts)
