"""A pickle that runs nothing: what is allowed comes through, everything else is refused by name."""

import builtins
import collections
import contextlib
import io
import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from promptcal.errors import DataError
from promptcal.imports import unpickling
from promptcal.imports.torch_files import read_torch_file
from promptcal.imports.unpickling import Placeholder, unpickle

HERE = Path("file.pkl")


class Call:
    """Pickles to a call of a function."""

    def __init__(self, function, *arguments):
        self.made = (function, arguments)

    def __reduce__(self):
        return self.made


def read(content: bytes):
    return unpickle(io.BytesIO(content), HERE, {})


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(plain, st.integers(2, 5))
def test_plain_values_are_read_as_python_reads_them(value, protocol):
    assert read(pickle.dumps(value, protocol=protocol)) == value


def test_mappings_become_plain_dicts():
    nested = collections.OrderedDict(a=collections.defaultdict(dict, b={1, 2}))
    for protocol in range(2, 6):
        found = read(pickle.dumps(nested, protocol=protocol))
        assert found == {"a": {"b": {1, 2}}}
        assert type(found) is type(found["a"]) is dict


def test_optimisers_schedulers_and_numpy_numbers_become_placeholders():
    for protocol in range(2, 6):
        assert read(pickle.dumps(torch.optim.lr_scheduler.CosineAnnealingLR, protocol=protocol)) is Placeholder
        assert isinstance(read(pickle.dumps({"result": np.float64(0.5)}, protocol=protocol))["result"], Placeholder)


MARKER = "marker-of-a-run"
POISONS = {
    "posix.system": Call(os.system, f"touch {MARKER}"),
    "builtins.eval": Call(builtins.eval, f"open('{MARKER}', 'w')"),
    "builtins.exec": Call(builtins.exec, f"open('{MARKER}', 'w')"),
    "io.open": Call(open, MARKER, "w"),
    "subprocess.Popen": Call(subprocess.Popen, ["touch", MARKER]),
    "builtins.getattr": Call(builtins.getattr, "text", "upper"),
    "torch.serialization.load": Call(torch.load, MARKER),
    "os._Environ": os._Environ,
}


@pytest.mark.parametrize("name", POISONS)
@pytest.mark.parametrize("form", ["pickle", "zip", "older"])
def test_a_poisoned_file_runs_nothing_and_is_refused_by_name(tmp_path, monkeypatch, name, form):
    monkeypatch.chdir(tmp_path)
    content = {"state_dict": {"ctx": torch.zeros(2, 4)}, "scheduler": [POISONS[name]]}
    if form == "pickle":
        with pytest.raises(DataError, match=rf"asks for '{name}'"):
            read(pickle.dumps(content["scheduler"]))
    else:
        torch.save(content, tmp_path / "model.pth.tar-5", _use_new_zipfile_serialization=form == "zip")
        with pytest.raises(DataError, match=rf"model\.pth\.tar-5 asks for '{name}'.*nothing in it was run"):
            read_torch_file(tmp_path / "model.pth.tar-5")
    assert not (tmp_path / MARKER).exists()


def test_the_poison_is_one(tmp_path, monkeypatch):
    """The refusals above mean something: Python itself runs such a pickle."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(POISONS["io.open"]))
    assert (tmp_path / MARKER).exists()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "os.system"),
        (b"\x80\x04\x8c\x0bcollections\x8c\x19OrderedDict.__reduce_ex__\x93.", "collections.OrderedDict.__reduce_ex__"),
        (b"(S'true'\nios\nsystem\n.", "os.system"),
        (b"c__builtin__\neval\n(S'1'\ntR.", "builtins.eval"),
        (b"ctorch.optimizers\nx\n.", "torch.optimizers.x"),
        (b"cnumpy\ndtype_of\n.", "numpy.dtype_of"),
    ],
)
def test_hand_written_pickles_are_refused_by_name(content, name):
    with pytest.raises(DataError, match=f"asks for '{name}'"):
        read(content)


def test_attributes_are_set_on_nothing():
    """A BUILD on a function or class of ours would otherwise change it for every file that follows."""
    before = dict(vars(Placeholder)), unpickling.default_mapping.__defaults__
    changed = b"(N(dS'__defaults__'\n(I1\ntsS'extend'\nI1\nstb."
    for target in (b"ccollections\ndefaultdict\n", b"ctorch.optim\nSGD\n", b"ccollections\nOrderedDict\n"):
        read(target + changed)
    assert (dict(vars(Placeholder)), unpickling.default_mapping.__defaults__) == before
    filled = read(b"\x80\x02ctorch.optim\nSGD\n)\x81}X\x01\x00\x00\x00aK\x01sb.")
    assert isinstance(filled, Placeholder)
    assert not vars(filled)


@pytest.mark.parametrize("length", range(0, 40, 3))
def test_a_cut_off_pickle_is_told(length):
    content = pickle.dumps({"a": [1.5, "text" * 5], "b": (1, 2)})
    with pytest.raises(DataError, match=r"file\.pkl is not whole"):
        read(content[:length])


@given(st.binary(max_size=60))
def test_no_bytes_do_more_than_be_refused(content):
    with contextlib.suppress(DataError):
        read(content)


def test_data_outside_the_pickle_is_refused():
    with pytest.raises(DataError, match="outside the pickle"):
        read(b"\x80\x02K\x01Q.")
