"""Files of ``torch.save``: the tensors that torch itself reads, whatever the form; a sentence for what is broken."""

import io
import pickle
import zipfile
from collections import OrderedDict

import pytest
import torch

from promptcal.errors import DataError
from promptcal.imports.torch_files import StoredTensor, named_tensors, read_torch_file, tensors_of

FORMS = pytest.mark.parametrize("legacy", [False, True], ids=["zipped", "older"])


def some_tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    whole = torch.randn(6, 8, generator=generator)
    found = {
        "plain": whole,
        "half": whole.half(),
        "bfloat": whole.bfloat16(),
        "double": whole.double(),
        "view": whole[1:4, ::2],
        "transposed": whole.T,
        "expanded": whole[:1].expand(3, 8),
        "scalar": torch.tensor(4.6052),
        "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(whole * 2),
    }
    whole_numbers = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    return found | {str(kind): torch.arange(5).to(kind) for kind in whole_numbers}


@FORMS
def test_every_tensor_is_read_as_torch_reads_it(tmp_path, legacy):
    path, tensors = tmp_path / "file.pt", some_tensors()
    torch.save(OrderedDict(tensors), path, _use_new_zipfile_serialization=not legacy)
    found, expected = read_torch_file(path), torch.load(path, weights_only=True)
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].shape == tuple(tensor.shape)
        read = found[name].read()
        assert read.dtype == tensor.dtype
        torch.testing.assert_close(read, tensor.detach(), rtol=0, atol=0)


@FORMS
def test_a_file_of_the_released_code_is_read_where_torch_refuses_it(tmp_path, save, legacy):
    tensors = {"ctx": torch.randn(4, 8).half()}
    path = save(tmp_path / "model.pth.tar-5", tensors, legacy=legacy, wrapped="module.")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=True)
    content = read_torch_file(path)
    assert content["epoch"] == 5
    found = named_tensors(path, content)
    assert list(found) == ["ctx"]
    torch.testing.assert_close(found["ctx"].read(), tensors["ctx"], rtol=0, atol=0)


@FORMS
def test_a_cut_off_file_is_told_wherever_it_ends(tmp_path, save, legacy):
    path = save(tmp_path / "model.pth.tar-5", {"ctx": torch.randn(40, 8)}, legacy=legacy)
    content = path.read_bytes()
    for length in [*range(0, 40, 7), *range(60, len(content), max(1, len(content) // 40)), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"model\.pth\.tar-5") as told:
            tensors_of(path)["ctx"].read()
        assert "\n" not in str(told.value)


def test_a_tensor_beyond_its_storage_is_refused(tmp_path):
    class Beyond:
        def __init__(self, *numbers):
            self.numbers = numbers

        def __reduce__(self):
            return torch._utils._rebuild_tensor_v2, (torch.zeros(4)._typed_storage(), *self.numbers, False, {})

    for numbers in (
        (0, (5,), (1,)),
        (3, (2,), (1,)),
        (0, (2, 2), (3, 1)),
        (-1, (1,), (1,)),
        (0, (2,), (1, 1)),
        (0, (9, 9), (0, 0)),
    ):
        torch.save({"a": Beyond(*numbers)}, tmp_path / "file.pt")
        with pytest.raises(DataError, match="not whole"):
            read_torch_file(tmp_path / "file.pt")
    torch.save({"a": Beyond(0, (2, 2), (2, 1))}, tmp_path / "file.pt")
    assert isinstance(read_torch_file(tmp_path / "file.pt")["a"], StoredTensor)


def test_storages_of_another_size_than_the_file_says_are_refused(tmp_path):
    torch.save({"a": torch.zeros(4)}, tmp_path / "whole.pt")
    with zipfile.ZipFile(tmp_path / "whole.pt") as whole, zipfile.ZipFile(tmp_path / "less.pt", "w") as less:
        for name in whole.namelist():
            less.writestr(name, b"1234" if name.endswith("data/0") else whole.read(name))
    with pytest.raises(DataError, match=r"less\.pt is not whole"):
        read_torch_file(tmp_path / "less.pt")["a"].read()


def test_what_is_something_else_is_told(tmp_path):
    file = tmp_path / "file.pt"

    def refused(match):
        with pytest.raises(DataError, match=match):
            tensors_of(file)

    refused("there is no file")
    file.write_text("hello")
    refused("is not a file of torch")
    file.write_bytes(pickle.dumps({"ctx": 1}))
    refused("is a pickle, but not one of torch")
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/b.txt", "hello")
    refused("zip file without tensors")
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(file))
    refused("TorchScript")
    torch.save([torch.zeros(2)], file)
    refused("no named tensors")
    torch.save({"state_dict": {"a": 3}}, file)
    refused("no named tensors")
    swapped = io.BytesIO()
    torch.save({"ctx": torch.zeros(2)}, file)
    with zipfile.ZipFile(file) as whole, zipfile.ZipFile(swapped, "w") as other:
        for name in whole.namelist():
            other.writestr(name, b"big" if name.endswith("byteorder") else whole.read(name))
    file.write_bytes(swapped.getvalue())
    refused("byte order")


def test_a_bare_state_dict_will_do(tmp_path):
    torch.save({"module._orig_mod.ctx": torch.ones(2, 3)}, tmp_path / "state.pt")
    torch.testing.assert_close(tensors_of(tmp_path / "state.pt")["ctx"].read(), torch.ones(2, 3))
