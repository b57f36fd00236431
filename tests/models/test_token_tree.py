import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptcal.models.text_plan import Tokens, plan
from promptcal.models.token_tree import choose, token_tree

TOKENS = Tokens(lambda text: [int(word) + 1 for word in text.replace(".", " 998").split()], 1000, 1001, 77)


def layout(names, n, position="end", tail="7 {}."):
    return plan([" ".join(map(str, name)) for name in names], n, TOKENS, position=position, tail=tail)


def text_of(tree, layout, label):
    """The tokens that the row of a class's end of text sees: (position, kind, value), read off the tree alone."""
    size = tree.mask.shape[1]
    block, inside = divmod(int(tree.leaf[label]) - tree.trunk, size)
    constants = tree.constants.shape[1]
    seen = []
    for key in np.nonzero(tree.mask[block, inside])[0]:
        if key < constants:
            owner, position = tree.constants[block, key]
            seen.append((int(position), "fixed", int(layout.ids[owner, position])))
            continue
        row = (
            key - constants
            if key < constants + tree.trunk
            else tree.trunk + block * size + key - constants - tree.trunk
        )
        learned = tree.slot[row] >= 0
        seen.append(
            (
                int(tree.position[row]),
                "learned" if learned else "fixed",
                int((tree.slot if learned else tree.token)[row]),
            )
        )
    return sorted(seen)


def expected_text(layout, label):
    slots = {int(position): slot for slot, position in enumerate(layout.context[label])}
    return [
        (position, "learned", slots[position])
        if position in slots
        else (position, "fixed", int(layout.ids[label, position]))
        for position in range(layout.eot[label] + 1)
    ]


@settings(deadline=None, max_examples=60)
@given(
    names=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=40),
    n=st.integers(0, 5),
    position=st.sampled_from(["end", "middle", "front"]),
    tail=st.sampled_from(["{}", "{}.", "7 8 {}."]),
    per_class=st.booleans(),
    width=st.sampled_from([4, 512]),
)
def test_every_end_of_text_sees_exactly_its_own_text(names, n, position, tail, per_class, width):
    arranged = layout(names, n, position, tail)
    tree = token_tree(arranged, width, per_class=per_class)
    for label in range(len(names)):
        assert text_of(tree, arranged, label) == expected_text(arranged, label)
    if per_class and n and len(names) > 1:
        assert len(np.unique(tree.leaf)) == len(names)


@given(
    names=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=20),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=40)
def test_chosen_rows_keep_what_they_see(names, seed):
    tree = token_tree(layout(names, 4), 64)
    kept = (np.random.default_rng(seed).random(len(tree.token)) < 0.5) & (tree.owner >= 0)
    queries = choose(tree, kept)
    assert np.array_equal(queries.rows[queries.place[kept]], np.nonzero(kept)[0])
    assert queries.trunk == kept[: tree.trunk].sum()
    flat = tree.mask.reshape(-1, tree.mask.shape[2])
    assert np.array_equal(queries.mask.reshape(-1, flat.shape[1]), flat[queries.rows[queries.trunk :] - tree.trunk])


def test_shared_tokens_take_one_row():
    tree = token_tree(layout([[1, 2, 3], [1, 2, 4], [1, 2, 4]], 16, tail="7 {}."), 512)
    context, word, stem, leaves = 16, 1, 2, 2 * 3
    assert len(tree.token) == context + word + stem + leaves
    assert tree.stem == 1
    assert tree.leaf[1] == tree.leaf[2] != tree.leaf[0]


def test_names_before_the_context_are_constants():
    tree = token_tree(layout([[1, 2, 3], [4, 5]], 4, "front", "{}."), 512)
    assert (tree.owner >= 0).sum() == 2 * (4 + 2)
    assert set(tree.token[tree.slot < 0]) == {999, 1001}


def test_class_specific_contexts_share_nothing_after_the_start():
    arranged = layout([[1, 2], [1, 2], [1, 3]], 4)
    tree = token_tree(arranged, 512, per_class=True)
    assert (tree.owner >= 0).sum() == arranged.eot.sum()


@pytest.mark.parametrize("classes", [100, 1000])
def test_blocks_bound_attention_and_padding(classes):
    generator = np.random.default_rng(0)
    names = [generator.integers(0, 900, generator.integers(1, 8)) for _ in range(classes)]
    tree = token_tree(layout(names, 16), 512)
    assert tree.mask.shape[0] > 1
    assert tree.mask.shape[1] <= 192
    assert (tree.owner < 0).sum() < 0.05 * len(tree.token)
