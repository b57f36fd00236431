"""Which token rows a causal text tower must compute for a class list, and which tokens each of them sees.

The texts of all classes form a tree of tokens: texts that start alike share nodes, learned context tokens included. A
causal tower gives a node the same activations in every text that passes through it, so one row per node is enough:

    constant   nothing learned on the path: its keys and values never change, and it needs no row
    trunk      common to all classes: one row each, seen by everybody
    block      a run of neighbouring classes (in sorted order) and the rows of their remaining nodes

Pure functions of token ids: no weights, no torch.
"""

from dataclasses import dataclass

import numpy as np

from promptcal.models.text_plan import TextPlan

ATTENTION_PRICE = 3.0
"""How much dearer a FLOP of attention is than one of a linear layer when block sizes are weighed."""
LARGEST_BLOCK = 192


@dataclass(frozen=True)
class TokenTree:
    """The rows, in the order [trunk | block 0 | block 1 | ...], every block padded to ``size`` rows.

    The keys a block sees are [the block's constants | trunk | the block's rows].

    Attributes:
        stem: how many constant tokens all texts begin with.
        trunk: how many rows follow them in all texts; 0 where there is one block, which then holds every row.
        constants: [blocks, k, 2] class and position of a block's constant tokens, stem first, padded with (0, 0).
        token: [R] token id of each row, 0 where it is learned.
        position: [R] position of each row in its text.
        slot: [R] number of the learned context token, -1 where the token is fixed.
        owner: [R] a class whose text holds the row, -1 for padding.
        mask: [blocks, size, keys] whether a row sees a key.
        leaf: [C] the row of each class's end of text.
    """

    stem: int
    trunk: int
    constants: np.ndarray
    token: np.ndarray
    position: np.ndarray
    slot: np.ndarray
    owner: np.ndarray
    mask: np.ndarray
    leaf: np.ndarray


@dataclass(frozen=True)
class Queries:
    """Rows that go on through a layer, equally many per block (filled up with rows that nobody reads).

    Attributes:
        rows: the chosen rows, trunk first.
        trunk: how many of them are trunk.
        mask: [blocks, chosen per block, keys] whether a chosen row sees a key.
        place: [R] where each row went, 0 where it was not chosen.
    """

    rows: np.ndarray
    trunk: int
    mask: np.ndarray
    place: np.ndarray


def token_tree(plan: TextPlan, width: int, *, per_class: bool = False) -> TokenTree:
    """The tree of a plan's texts.

    Args:
        plan: token ids and context positions of C classes.
        width: width of a token, against which the price of attention is weighed.
        per_class: whether learned tokens differ from class to class, so that nothing after them is shared.
    """
    slots, symbol = _symbols(plan, per_class)
    classes, length = symbol.shape
    order = np.lexsort(symbol.T[::-1])  # texts that start alike become neighbours
    symbol, eot, column = symbol[order], plan.eot[order, None], np.arange(length)
    learned_from = np.minimum(plan.context.min(axis=1, initial=length)[order, None], eot)
    learned, constant = (column >= learned_from) & (column <= eot), column < learned_from
    fresh = np.ones((classes, length), dtype=bool)  # whether a token starts a node of its own
    fresh[1:] = np.logical_or.accumulate(symbol[1:] != symbol[:-1], axis=1)
    common = min(int(np.argmax(np.append(fresh[1:].any(axis=0), True))), int(eot.min()))
    stem = min(common, int(learned_from.min()))
    starts, shared = _cut(fresh & learned, learned, stem, common, width)
    fresh[starts] = True

    block = np.repeat(np.arange(len(starts)), np.diff(starts, append=classes))
    trunk, own = shared - stem, learned & (column >= shared)
    rank, size = _rank(fresh & own, starts, block)
    constant_rank, constants = _rank(fresh & constant, starts, block)
    row = np.where(column < shared, column - stem, trunk + block[:, None] * size + rank)
    owner, position = _write(np.full((trunk + len(starts) * size, 2), (-1, 0)), (row,), learned, order).T
    slot = np.where(owner >= 0, slots[owner, position], -1)
    known = np.zeros((len(starts), constants, 2), dtype=np.int64)

    mask = np.zeros((len(starts), size, constants + trunk + size), dtype=bool)
    mask[:, :, :stem] = mask[:, :, constants : constants + trunk] = True
    key = np.where(own, constants + trunk + rank, constant_rank)
    sees = own[:, stem:, None] & (own | constant)[:, None, stem:] & np.tri(length - stem, dtype=bool)
    text, query, past = np.nonzero(sees)
    mask[block[text], rank[text, query + stem], key[text, past + stem]] = True
    return TokenTree(
        stem=stem,
        trunk=trunk,
        constants=_write(known, (np.broadcast_to(block[:, None], row.shape), constant_rank), constant, order),
        token=np.where((owner >= 0) & (slot < 0), plan.ids[owner, position], 0),
        position=position,
        slot=slot,
        owner=owner,
        mask=mask,
        leaf=row[np.argsort(order), plan.eot],
    )


def choose(tree: TokenTree, kept: np.ndarray) -> Queries:
    """The rows of a tree that are ``kept`` [R], made equally many per block."""
    blocks, size, _ = tree.mask.shape
    trunk = np.nonzero(kept[: tree.trunk])[0]
    inside = kept[tree.trunk :].reshape(blocks, size)
    chosen = np.argsort(~inside, axis=1, kind="stable")[:, : int(inside.sum(axis=1).max())]
    rows = np.concatenate([trunk, (tree.trunk + np.arange(blocks)[:, None] * size + chosen).ravel()])
    place = np.zeros(len(kept), dtype=np.int64)
    place[rows] = np.arange(len(rows))
    return Queries(rows, len(trunk), np.take_along_axis(tree.mask, chosen[:, :, None], axis=1), place)


def _symbols(plan: TextPlan, per_class: bool) -> tuple[np.ndarray, np.ndarray]:
    """[C, L] the learned token at each place, else -1; and numbers [C, L] that are equal where two tokens are."""
    classes, n = plan.context.shape
    column = np.arange(int(plan.eot.max()) + 1)
    slots = np.full((classes, len(column)), -1)
    np.put_along_axis(slots, plan.context, np.arange(n)[None], axis=1)
    learned = -2 - slots - n * per_class * np.arange(classes)[:, None]
    symbol = np.where(slots < 0, plan.ids[:, : len(column)], learned)
    return slots, np.where(column <= plan.eot[:, None], symbol, -1)


def _write(target: np.ndarray, where: tuple[np.ndarray, ...], chosen: np.ndarray, order: np.ndarray) -> np.ndarray:
    """``target`` [..., 2] with class and position of every chosen token at the place ``where`` gives for it."""
    text, position = np.nonzero(chosen)
    target[tuple(index[chosen] for index in where)] = np.stack([order[text], position], axis=-1)
    return target


def _cut(fresh: np.ndarray, learned: np.ndarray, stem: int, common: int, width: int) -> tuple[np.ndarray, int]:
    """The first class of every block, and how many leading tokens stand outside the blocks: the cheapest way."""
    gain = np.concatenate([[0], np.cumsum(fresh[:, common:].sum(axis=1))])
    whole = learned[:, common:].sum(axis=1)
    everything = int(whole[0] + gain[-1] - gain[1] + learned[0, stem:common].sum())
    best, price = (np.zeros(1, dtype=np.int64), stem), _price(everything, stem + everything, width)
    longest = int(whole.max())
    for capacity in range(longest, min(max(LARGEST_BLOCK, 2 * longest), everything)):
        starts, end = [], 0
        while end < len(whole):
            starts.append(end)
            end = int(np.searchsorted(gain, gain[end + 1] + capacity - whole[end], "right")) - 1
        cost = _price(len(starts) * capacity, common + capacity, width) + _price(common - stem, common, width)
        if cost < price:
            best, price = (np.array(starts), common), cost
    return best


def _price(rows: int, keys: int, width: int) -> float:
    """FLOPs of one layer over 4·width: 6·width of linear layers a row, and a row's products with its keys."""
    return rows * (6 * width + ATTENTION_PRICE * keys)


def _rank(nodes: np.ndarray, starts: np.ndarray, block: np.ndarray) -> tuple[np.ndarray, int]:
    """The number of each text's nodes within its block (shared ones keep theirs), and the most nodes of a block."""
    running = np.cumsum(nodes).reshape(nodes.shape)
    before = np.append(0, running[:, -1])[starts]
    number = np.maximum.accumulate(np.where(nodes, running, 0), axis=0) - 1 - before[block][:, None]
    return number, int(np.diff(before, append=running[-1, -1]).max())
