"""Files of CIFAR, CIFAR-10-C, MNIST, SVHN and Tiny-ImageNet as they lie: tiny ones of each format and its quirks."""

import gzip
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from promptcal.data.arrays import hold_out
from promptcal.data.cards import card_named, load_task
from promptcal.errors import ConfigError, DataError

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def read(name: str, root: Path, **reader):
    card = card_named(name)
    return load_task(replace(card, reader={**card.reader, **reader}), root)


def pixels_of(task, sample) -> np.ndarray:
    return np.asarray(task.images.open(sample.path))


def cifar_rows(images: np.ndarray) -> np.ndarray:
    """Rows of a red, a green and a blue plane, as the batches hold them."""
    return np.stack([np.concatenate([image[..., channel].ravel() for channel in range(3)]) for image in images])


def write_pickle(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)


def write_cifar10(folder: Path, images: np.ndarray) -> None:
    labels = [row % 2 for row in range(len(images))]
    for batch in range(5):
        rows = slice(6 * batch, 6 * batch + 6)
        write_pickle(folder / f"data_batch_{batch + 1}", {"data": cifar_rows(images[rows]), "labels": labels[rows]})
    write_pickle(folder / "test_batch", {"data": cifar_rows(images[30:]), "labels": labels[30:]})
    write_pickle(folder / "batches.meta", {"label_names": ["airplane", "automobile"]})


def test_cifar10_batches(tmp_path, images):
    write_cifar10(tmp_path / "cifar-10-batches-py", images)
    task = read("cifar10", tmp_path, val_fraction=0.2)
    assert task.classes.names == ("airplane", "automobile")
    assert (len(task.train), len(task.val), len(task.test)) == (24, 6, 10)
    assert sorted(sample.label for sample in task.val) == [0, 0, 0, 1, 1, 1]
    for split, offset in (("train", 0), ("val", 0), ("test", 30)):
        for sample in getattr(task, split):
            row = offset + int(sample.path.split("/")[1])
            assert sample.label == row % 2
            assert np.array_equal(pixels_of(task, sample), images[row])
    below = read("cifar10", tmp_path / "cifar-10-batches-py")
    assert [task.images.digest(s.path) for s in below.test] == [task.images.digest(s.path) for s in task.test]


def test_cifar100_takes_the_fine_labels(tmp_path, images):
    folder = tmp_path / "cifar100" / "cifar-100-python"
    for file, part in (("train", images[:20]), ("test", images[20:])):
        fine = [row % 4 for row in range(len(part))]
        write_pickle(folder / file, {"data": cifar_rows(part), "fine_labels": fine, "coarse_labels": [0] * len(part)})
    write_pickle(folder / "meta", {"fine_label_names": ["apple", "aquarium_fish", "baby", "bear"]})
    task = read("cifar100", tmp_path, val_fraction=0.0)
    assert task.classes.names == ("apple", "aquarium fish", "baby", "bear")
    assert [sample.label for sample in task.test] == [row % 4 for row in range(20)]
    assert not task.val


class Malice:
    def __reduce__(self):
        return print, ("run",)


def test_a_batch_that_is_no_array_is_refused_and_never_run(tmp_path, images, capsys):
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder, images)
    write_pickle(folder / "data_batch_3", {"data": Malice(), "labels": []})
    with pytest.raises(DataError, match=r"data_batch_3 is no pickle of plain values and arrays \(it names .*print"):
        read("cifar10", tmp_path)
    assert capsys.readouterr().out == ""
    (folder / "data_batch_3").write_bytes(b"\x80\x02}")
    with pytest.raises(DataError, match="data_batch_3 is no pickle"):
        read("cifar10", tmp_path)
    write_pickle(folder / "data_batch_3", {"data": np.zeros((2, 9), np.uint8), "labels": [0, 1]})
    with pytest.raises(DataError, match=r"uint8 of shape \[2, 9\], not bytes \[n, 3072\]"):
        read("cifar10", tmp_path)
    with pytest.raises(ConfigError, match="CIFAR with 10 and with 100"):
        read("cifar10", tmp_path, classes=20)


def test_missing_files_name_the_place_and_the_download(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"cifar-10-batches-py/batches\.meta .*download=true fetches it"):
        read("cifar10", tmp_path)
    asked = []

    def fake(root, download, train):
        asked.append((root, download, train))
        write_cifar10(Path(root) / "cifar-10-batches-py", np.zeros((40, 32, 32, 3), np.uint8))

    monkeypatch.setattr("torchvision.datasets.CIFAR10", fake)
    assert not list(tmp_path.iterdir())
    for _ in range(2):  # the second time the files are there
        assert len(read("cifar10", tmp_path, download=True).test) == 10
    assert asked == [(str(tmp_path), True, True)]

    def broken(root, download, split):
        raise RuntimeError("no network")

    monkeypatch.setattr("torchvision.datasets.SVHN", broken)
    with pytest.raises(DataError, match=r"SVHN could not be downloaded into .* \(no network\)"):
        read("svhn", tmp_path, download=True)


def test_cifar10_c_has_its_severities_in_order(tmp_path):
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    images = np.random.default_rng(1).integers(0, 256, (5 * 4, 32, 32, 3), dtype=np.uint8)
    labels = np.tile(np.array([3, 1, 0, 9]), 5)
    np.save(folder / "fog.npy", images)
    np.save(folder / "labels.npy", labels)
    task = read("cifar10_c", tmp_path, corruption="fog", severity=4)
    assert (len(task.train), len(task.val)) == (0, 0)
    assert [sample.label for sample in task.test] == [3, 1, 0, 9]
    for row, sample in enumerate(task.test):
        assert np.array_equal(pixels_of(task, sample), images[12 + row])
    with pytest.raises(DataError, match=r"unknown corruption 'frog'\. Did you mean 'fog'"):
        read("cifar10_c", tmp_path, corruption="frog")
    with pytest.raises(ConfigError, match="severity=0"):
        read("cifar10_c", tmp_path, corruption="fog", severity=0)


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(side.to_bytes(4, "big") for side in array.shape)
    return header + array.tobytes()


@pytest.mark.parametrize(("place", "packed"), [("MNIST/raw", False), ("mnist", True)])
def test_mnist_idx_files_plain_and_gzipped(tmp_path, place, packed):
    rng = np.random.default_rng(2)
    folder = tmp_path / place
    folder.mkdir(parents=True)
    parts = {}
    for prefix, n in (("train", 20), ("t10k", 10)):
        parts[prefix] = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8), np.arange(n, dtype=np.uint8) % 10
        for kind, array in zip(("images-idx3", "labels-idx1"), parts[prefix], strict=True):
            content = idx(array)
            file = folder / f"{prefix}-{kind}-ubyte{'.gz' if packed else ''}"
            file.write_bytes(gzip.compress(content) if packed else content)
    task = read("mnist", tmp_path, val_fraction=0.5)
    assert task.classes.names == DIGITS
    assert (len(task.train), len(task.val), len(task.test)) == (10, 10, 10)
    images, labels = parts["t10k"]
    assert [sample.label for sample in task.test] == labels.tolist()
    assert np.array_equal(pixels_of(task, task.test[7])[..., 1], images[7])
    broken = next(folder.glob("t10k-images*"))
    broken.write_bytes(gzip.compress(idx(images)[:-1]) if packed else idx(images)[:-1])
    with pytest.raises(DataError, match=rf"{broken.name} holds 7839 values, not the 7840"):
        read("mnist", tmp_path)
    broken.write_bytes(b"<html>")
    with pytest.raises(DataError, match=broken.name):
        read("mnist", tmp_path)


def test_svhn_calls_zero_ten(tmp_path):
    from scipy.io import savemat

    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (32, 32, 3, 12), dtype=np.uint8)
    labels = np.array([10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1], dtype=np.uint8)[:, None]
    (tmp_path / "svhn").mkdir()
    for split in ("train", "test"):
        savemat(tmp_path / "svhn" / f"{split}_32x32.mat", {"X": images, "y": labels})
    task = read("svhn", tmp_path, val_fraction=0.0)
    assert [task.classes.names[sample.label] for sample in task.test] == [*DIGITS, "zero", "one"]
    assert np.array_equal(pixels_of(task, task.test[5]), images[..., 5])
    savemat(tmp_path / "svhn" / "test_32x32.mat", {"X": images})
    with pytest.raises(DataError, match=r"test_32x32\.mat is no SVHN file"):
        read("svhn", tmp_path)


def test_tiny_imagenet_tests_on_its_annotated_validation_images(tmp_path):
    folder = tmp_path / "tiny-imagenet-200"
    wnids = ["n02", "n01", "n03"]
    for wnid in wnids:
        place = folder / "train" / wnid / "images"
        place.mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (64, 64), (10 * number, 0, 0)).save(place / f"{wnid}_{number}.JPEG")
    (folder / "val" / "images").mkdir(parents=True)
    for number in range(2):
        Image.new("L", (64, 64), 9).save(folder / "val" / "images" / f"val_{number}.JPEG")
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    (folder / "words.txt").write_text("n00\tentity\nn01\tcrane\nn02\tgoldfish, Carassius auratus\nn03\tcrane, hoist\n")
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn03\t0\t0\t9\t9\nval_1.JPEG\tn02\t1\t1\t8\t8\n")
    task = read("tiny_imagenet", tmp_path, val_fraction=0.25)
    assert task.classes.names == ("crane", "goldfish", "crane, hoist")
    assert (len(task.train), len(task.val)) == (9, 3)
    assert [(sample.path, sample.label) for sample in task.test] == [
        ("val/images/val_0.JPEG", 2),
        ("val/images/val_1.JPEG", 1),
    ]
    assert task.images.open(task.test[0].path).mode == "RGB"
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn09\t0\t0\t9\t9\n")
    with pytest.raises(DataError, match=r"val_annotations.txt, line 1: 'n09' is not in wnids.txt"):
        read("tiny_imagenet", tmp_path)


def test_a_share_of_each_class_is_held_out_and_nothing_is_lost():
    import random

    from promptcal.types import Sample

    samples = [Sample(str(row), row % 3) for row in range(30)]
    left, held = hold_out(samples, 0.3, random.Random(0))
    assert sorted((*left, *held), key=lambda sample: int(sample.path)) == samples
    assert sorted(sample.label for sample in held) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert held != hold_out(samples, 0.3, random.Random(1))[1]
    with pytest.raises(ConfigError, match=r"val_fraction=1\.0"):
        hold_out(samples, 1.0, random.Random(0))


def test_imagenet_real_keeps_images_of_one_label(tmp_path):
    import json

    folder = tmp_path / "imagenet"
    wnids = [f"n{number:08d}" for number in range(1000)]
    for number, wnid in enumerate(wnids, start=1):
        for file in (f"train/{wnid}/{wnid}_1.JPEG", f"val/{wnid}/ILSVRC2012_val_{number:08d}.JPEG"):
            (folder / file).parent.mkdir(parents=True)
            (folder / file).touch()
    (folder / "classnames.txt").write_text("\n".join(f"{wnid} name {wnid}" for wnid in wnids))
    real = [[label] for label in range(1000)]
    real[1], real[2], real[3] = [1, 7], [], [9]
    (folder / "real.json").write_text(json.dumps(real))
    task = read("imagenet_real", tmp_path)
    assert len(task.classes) == 1000
    assert len(task.train) == 1000
    labels = {sample.path.split("/")[1]: sample.label for sample in task.test}
    assert len(labels) == 998
    assert [labels.get(wnids[row]) for row in range(5)] == [0, None, None, 9, 4]
    (folder / "real.json").write_text(json.dumps(real[:500]))
    with pytest.raises(DataError, match=r"val_00000501\.JPEG' is not called as"):
        read("imagenet_real", tmp_path)
    (folder / "real.json").write_text("[[1000]]")
    with pytest.raises(DataError, match="label outside 0 to 999"):
        read("imagenet_real", tmp_path)
