"""Every data set in the layout people have it in, as trees of tiny images with the real names and their quirks."""

import io
import json
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from promptcal.data import base_novel, check_images, few_shot, load_task
from promptcal.data.cards import card_named
from promptcal.data.making import split_of_ones_own
from promptcal.errors import ConfigError, DataError
from promptcal.types import Task


def _jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (6, 4), (200, 30, 30)).save(buffer, "JPEG")
    return buffer.getvalue()


JPEG = _jpeg()


def put(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(JPEG)


def text(file: Path, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


# --- trees with raw annotations: each returns the published names in label order and, by label, its images -----------


@dataclass(frozen=True)
class Tree:
    """What a tree holds: names in label order, and the images and test images as (path below the folder, label)."""

    names: list[str]
    images: list[tuple[str, int]]
    test: list[tuple[str, int]] | None = None


def class_folders(folder: Path, below: str, classes: dict[str, str], per_class: int = 10) -> Tree:
    images = []
    for label, raw in enumerate(sorted(classes)):
        files = [f"{below}/{raw}/image_{number:04d}.jpg" for number in range(per_class)]
        put(*(folder / file for file in files))
        images += [(file, label) for file in files]
    return Tree([classes[raw] for raw in sorted(classes)], images)


def caltech101(folder: Path) -> Tree:
    put(folder / "101_ObjectCategories/BACKGROUND_Google/image_0001.jpg")
    put(folder / "101_ObjectCategories/Faces_easy/image_0001.jpg")
    put(folder / "101_ObjectCategories/.DS_Store/image_0001.jpg")
    classes = {"accordion": "accordion", "airplanes": "airplane", "Faces": "face", "Leopards": "leopard"}
    return class_folders(folder, "101_ObjectCategories", {**classes, "Motorbikes": "motorbike", "car_side": "car side"})


def food101(folder: Path) -> Tree:
    return class_folders(folder, "images", {"apple_pie": "apple pie", "baklava": "baklava", "sushi": "sushi"})


def dtd(folder: Path) -> Tree:
    return class_folders(
        folder, "images", {"banded": "banded", "polka-dotted": "polka-dotted", "zigzagged": "zigzagged"}
    )


def eurosat(folder: Path) -> Tree:
    names = {
        "AnnualCrop": "Annual Crop Land",
        "Forest": "Forest",
        "HerbaceousVegetation": "Herbaceous Vegetation Land",
        "Highway": "Highway or Road",
        "Industrial": "Industrial Buildings",
        "Pasture": "Pasture Land",
        "PermanentCrop": "Permanent Crop Land",
        "Residential": "Residential Buildings",
        "River": "River",
        "SeaLake": "Sea or Lake",
    }
    return class_folders(folder, "2750", names, per_class=5)


def oxford_pets(folder: Path) -> Tree:
    breeds = ["Abyssinian", "american_bulldog", "Bombay", "saint_bernard"]
    rows = {"trainval": [], "test": []}
    found = {"trainval": [], "test": []}
    for number in range(1, 11):
        for label, breed in enumerate(breeds):
            part = "trainval" if number <= 6 else "test"
            rows[part].append(f"{breed}_{number} {label + 1} {1 + label % 2} {number}")
            found[part].append((f"images/{breed}_{number}.jpg", label))
            put(folder / f"images/{breed}_{number}.jpg")
    (folder / "images/Abyssinian_101.mat").write_bytes(b"not an image")
    for part, lines in rows.items():
        text(folder / f"annotations/{part}.txt", *lines)
    names = ["abyssinian", "american bulldog", "bombay", "saint bernard"]
    return Tree(names, found["trainval"], found["test"])


def stanford_cars(folder: Path) -> Tree:
    from scipy.io import savemat

    raw = ["AM General Hummer SUV 2000", "Acura RL Sedan 2012", "smart fortwo Convertible 2012"]
    kinds = [("bbox_x1", "O"), ("class", "O"), ("fname", "O")]
    (folder / "devkit").mkdir(parents=True)
    savemat(folder / "devkit/cars_meta.mat", {"class_names": np.array([raw], dtype=object)})
    found = {}
    for part, file in (("train", "devkit/cars_train_annos.mat"), ("test", "cars_test_annos_withlabels.mat")):
        labels = [2, 0, 1] * 6
        rows = np.array([(3, np.uint8(label + 1), f"{n:05d}.jpg") for n, label in enumerate(labels, 1)], dtype=kinds)
        savemat(folder / file, {"annotations": rows[None]})
        found[part] = [(f"cars_{part}/{number:05d}.jpg", label) for number, label in enumerate(labels, 1)]
        put(*(folder / path for path, _ in found[part]))
    names = ["2000 AM General Hummer SUV", "2012 Acura RL Sedan", "2012 smart fortwo Convertible"]
    return Tree(names, found["train"], found["test"])


def oxford_flowers(folder: Path) -> Tree:
    from scipy.io import savemat

    folder.mkdir(parents=True)
    numbers = [3] * 10 + [1] * 11 + [2] * 12  # the data set's first image is of its class 77
    savemat(folder / "imagelabels.mat", {"labels": np.array([numbers], dtype=np.uint8)})
    names = {"2": "hard-leaved pocket orchid", "1": "pink primrose", "3": "canterbury bells"}
    (folder / "cat_to_name.json").write_text(json.dumps(names))
    images = [(f"jpg/image_{row:05d}.jpg", number - 1) for row, number in enumerate(numbers, 1)]
    put(*(folder / path for path, _ in images))
    return Tree(["pink primrose", "hard-leaved pocket orchid", "canterbury bells"], images)


def sun397(folder: Path) -> Tree:
    places = ["/a/abbey", "/a/apartment_building/outdoor", "/a/athletic_field/outdoor", "/y/youth_hostel"]
    text(folder / "ClassName.txt", *places)
    found = {}
    for part, count in (("Training", 7), ("Testing", 3)):
        lines = [f"{place}/sun_{part[0]}{n}.jpg" for n in range(count) for place in reversed(places)]
        text(folder / f"{part}_01.txt", *lines)
        found[part] = [(f"SUN397{line}", places.index(line.rpartition("/")[0])) for line in lines]
        put(*(folder / path for path, _ in found[part]))
    names = ["abbey", "outdoor apartment building", "outdoor athletic field", "youth hostel"]
    return Tree(names, found["Training"], found["Testing"])


def ucf101(folder: Path) -> Tree:
    actions = ["ApplyEyeMakeup", "Archery", "HandstandPushups", "TaiChi", "YoYo"]
    files = ["v_ApplyEyeMakeup", "v_Archery", "v_HandStandPushups", "v_TaiChi", "v_YoYo"]
    folders = ["Apply_Eye_Makeup", "Archery", "Handstand_Pushups", "Tai_Chi", "Yo_Yo"]
    lists = folder / "ucfTrainTestlist"
    text(lists / "classInd.txt", *(f"{number} {action}" for number, action in enumerate(actions, 1)))
    found = {}
    for part, groups in (("train", range(8, 14)), ("test", range(1, 4))):
        triples = [(label, group) for label in range(5) for group in groups]
        lines = [f"{actions[label]}/{files[label]}_g{group:02d}_c01.avi" for label, group in triples]
        ends = [f" {label + 1}\r" if part == "train" else "\r" for label, _ in triples]
        text(lists / f"{part}list01.txt", *(line + end for line, end in zip(lines, ends, strict=True)))
        found[part] = [
            (f"UCF-101-midframes/{folders[label]}/{files[label]}_g{group:02d}_c01.jpg", label)
            for label, group in triples
        ]
        put(*(folder / path for path, _ in found[part]))
    names = ["Apply Eye Makeup", "Archery", "Handstand Pushups", "Tai Chi", "Yo Yo"]
    return Tree(names, found["train"], found["test"])


TREES: dict[str, Callable[[Path], Tree]] = {
    "caltech101": caltech101,
    "dtd": dtd,
    "eurosat": eurosat,
    "food101": food101,
    "oxford_flowers": oxford_flowers,
    "oxford_pets": oxford_pets,
    "stanford_cars": stanford_cars,
    "sun397": sun397,
    "ucf101": ucf101,
}

TEMPLATES = {
    "caltech101": "a photo of a {}.",
    "dtd": "{} texture.",
    "eurosat": "a centered satellite photo of {}.",
    "food101": "a photo of {}, a type of food.",
    "oxford_flowers": "a photo of a {}, a type of flower.",
    "oxford_pets": "a photo of a {}, a type of pet.",
    "stanford_cars": "a photo of a {}.",
    "sun397": "a photo of a {}.",
    "ucf101": "a photo of a person doing {}.",
    "fgvc_aircraft": "a photo of a {}, a type of aircraft.",
    "imagenet": "a photo of a {}.",
    "imagenetv2": "a photo of a {}.",
    "imagenet_sketch": "a photo of a {}.",
    "imagenet_a": "a photo of a {}.",
    "imagenet_r": "a photo of a {}.",
}


def published_rule(tree: Tree, seed: int) -> dict[str, list[tuple[str, int]]]:
    """The rule of the released code, with Python's global generator, on files in the order of the tree."""
    random.seed(seed)
    groups: dict[int, list[str]] = {}
    for path, label in tree.images:
        groups.setdefault(label, []).append(path)
    splits: dict[str, list[tuple[str, int]]] = {"train": [], "val": [], "test": list(tree.test or [])}
    for label, paths in groups.items():
        random.shuffle(paths)
        if tree.test is None:
            n_train, n_val = round(len(paths) * 0.5), round(len(paths) * 0.2)
            parts = {
                "train": paths[:n_train],
                "val": paths[n_train : n_train + n_val],
                "test": paths[n_train + n_val :],
            }
        else:
            n_val = round(len(paths) * 0.2)
            parts = {"val": paths[:n_val], "train": paths[n_val:], "test": []}
        for split, chosen in parts.items():
            splits[split] += [(path, label) for path in chosen]
    return splits


def published_draw(samples, shots: int) -> list[tuple[str, int]]:
    """The drawing rule of the released code, on Python's global generator as it stands."""
    groups: dict[int, list] = {}
    for sample in samples:
        groups.setdefault(sample.label, []).append(sample)
    chosen = [s for items in groups.values() for s in (random.sample(items, shots) if len(items) >= shots else items)]
    return [(sample.path, sample.label) for sample in chosen]


def listed(samples) -> list[tuple[str, int]]:
    return [(sample.path, sample.label) for sample in samples]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module", params=sorted(TREES))
def prepared(request, root) -> tuple[str, Tree, Task]:
    """A tree with a split file made by the published rule, put where the published one lies."""
    name = request.param
    card = card_named(name)
    tree = TREES[name](root / card.folder)
    before = sorted(root.rglob("*"))
    content = split_of_ones_own(card, root / card.folder, seed=3)
    assert sorted(root.rglob("*")) == before
    (root / card.folder / card.reader["split"]).write_text(json.dumps(content))
    return name, tree, load_task(card, root)


def test_a_missing_split_file_is_one_sentence_for_every_card(root, prepared):
    name, *_ = prepared
    card = card_named(name)
    file = root / card.folder / card.reader["split"]
    content = file.read_bytes()
    file.unlink()
    try:
        with pytest.raises(DataError, match=f"no split file {file}; put the published one there.*data split") as caught:
            load_task(card, root)
        assert "\n" not in str(caught.value)
        assert not file.exists()
    finally:
        file.write_bytes(content)


def test_names_templates_and_images_are_as_published(prepared):
    name, tree, task = prepared
    assert list(task.classes.names) == tree.names
    assert task.classes.templates == (TEMPLATES[name],)
    assert task.classes.texts()[0][0] == TEMPLATES[name].format(tree.names[0])
    assert check_images(task).images.open(task.test[-1].path).size == (6, 4)


def test_the_split_is_that_of_the_published_rule(prepared):
    _, tree, task = prepared
    expected = published_rule(tree, 3)
    assert {split: listed(getattr(task, split)) for split in expected} == expected
    everything = [path for split in expected.values() for path, _ in split]
    assert sorted(everything) == sorted(path for path, _ in [*tree.images, *(tree.test or [])])


@pytest.mark.parametrize(("shots", "seed"), [(1, 1), (3, 2)])
def test_draws_are_entry_by_entry_those_of_the_published_rule(prepared, shots, seed):
    _, _, task = prepared
    drawn = few_shot(task, shots, seed)
    random.seed(seed)
    assert listed(drawn.train) == published_draw(task.train, shots)
    assert listed(drawn.val) == published_draw(task.val, min(shots, 4))
    assert drawn.test == task.test


def test_halves_are_relabelled_from_zero(prepared):
    _, tree, task = prepared
    base, novel = base_novel(task)
    half = (len(tree.names) + 1) // 2
    assert (list(base.classes.names), list(novel.classes.names)) == (tree.names[:half], tree.names[half:])
    for part, shift in ((base, 0), (novel, half)):
        assert listed(part.test) == [
            (path, label - shift) for path, label in listed(task.test) if (label >= half) == (shift > 0)
        ]
    assert len(base.test) + len(novel.test) == len(task.test)


def test_a_split_of_ones_own_says_so_whenever_it_is_read(prepared, root, caplog):
    name, tree, _ = prepared
    with caplog.at_level(logging.WARNING):
        load_task(card_named(name), root)
    assert "is not the published split" in caplog.text
    assert ("test images are the published ones" in caplog.text) == (tree.test is not None)


def test_another_seed_is_another_split_with_the_same_published_test_images(root, prepared):
    name, tree, _ = prepared
    card = card_named(name)
    one, two = (split_of_ones_own(card, root / card.folder, seed) for seed in (3, 4))
    assert one["train"] != two["train"]
    assert (one["test"] == two["test"]) == (tree.test is not None)


# --- mistakes in annotations -----------------------------------------------------------------------------------------


def broken_tree(name: str, folder: Path, change: Callable[[Path], None]) -> None:
    TREES[name](folder)
    change(folder)
    split_of_ones_own(card_named(name), folder, 1)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("oxford_pets", lambda f: (f / "annotations/test.txt").unlink(), r"no annotation file .*annotations/test\.txt"),
        ("oxford_pets", lambda f: text(f / "annotations/test.txt", "Bombay 1"), r"test\.txt: the line 'Bombay 1'"),
        ("stanford_cars", lambda f: (f / "devkit/cars_meta.mat").unlink(), r"no annotation file .*cars_meta\.mat"),
        ("stanford_cars", lambda f: (f / "devkit/cars_meta.mat").write_bytes(b"x" * 200), r"not a whole \.mat file"),
        ("oxford_flowers", lambda f: (f / "cat_to_name.json").write_text('{"1": "a"}'), r"has no name for class 2"),
        ("oxford_flowers", lambda f: (f / "cat_to_name.json").write_text("{"), r"cat_to_name\.json is not JSON"),
        ("sun397", lambda f: text(f / "Testing_01.txt", "/z/zoo/x.jpg"), r"'/z/zoo/x\.jpg' is not in ClassName"),
        ("ucf101", lambda f: text(f / "ucfTrainTestlist/testlist01.txt", "Rowing/v.avi"), r"'Rowing/v\.avi' is not in"),
        ("ucf101", lambda f: text(f / "ucfTrainTestlist/classInd.txt", "Rowing"), r"'Rowing' is not 'number Action'"),
        ("dtd", lambda f: (f / "images").rename(f / "pictures"), r"images has no class folders"),
        (
            "food101",
            lambda f: [p.unlink() for p in (f / "images/sushi").glob("*[1-9].jpg")],
            r"'sushi' has 1 images, too",
        ),
    ],
)
def test_faulty_annotations_are_one_sentence(tmp_path, name, change, words):
    with pytest.raises(DataError, match=words) as caught:
        broken_tree(name, tmp_path / "set", change)
    assert "\n" not in str(caught.value)


def test_cars_without_labels_are_told_from_those_with(tmp_path):
    from scipy.io import savemat

    stanford_cars(tmp_path / "set")
    rows = np.array([(3, "00001.jpg")], dtype=[("bbox_x1", "O"), ("fname", "O")])
    savemat(tmp_path / "set/cars_test_annos_withlabels.mat", {"annotations": rows[None]})
    with pytest.raises(DataError, match="may be those without labels"):
        split_of_ones_own(card_named("stanford_cars"), tmp_path / "set", 1)


def test_flowers_without_names_take_those_of_torchvision(tmp_path, caplog):
    oxford_flowers(tmp_path / "set")
    (tmp_path / "set/cat_to_name.json").unlink()
    with caplog.at_level(logging.WARNING):
        content = split_of_ones_own(card_named("oxford_flowers"), tmp_path / "set", 1)
    assert {name for *_, name in content["train"]} == {"pink primrose", "hard-leaved pocket orchid", "canterbury bells"}
    assert "those of torchvision" in caplog.text


def test_torchvisions_flowers_are_the_published_ones(test_data):
    from torchvision.datasets import Flowers102

    published = json.loads((test_data / "splits/class_names.json").read_text())["oxford_flowers"]
    assert [name.rstrip("?") for name in Flowers102.classes] == published


def test_food_lies_in_either_of_two_folders(tmp_path):
    card = card_named("food101")
    food101(tmp_path / "food101")
    with pytest.raises(DataError, match=r"no split file .*/food101/split_zhou_Food101\.json"):
        load_task(card, tmp_path)
    with pytest.raises(DataError, match=r"no folder .*/food-101 or .*/food101 for 'food101'"):
        load_task(card, tmp_path / "food101")


# --- FGVC-Aircraft ---------------------------------------------------------------------------------------------------


@pytest.fixture
def aircraft(tmp_path) -> Path:
    folder = tmp_path / "fgvc_aircraft"
    variants = ["707-320", "A300B4", "Challenger 600", "F-16A/B", "DC-9-30"]
    text(folder / "variants.txt", *variants)
    for split, count in (("train", 4), ("val", 3), ("test", 2)):
        rows = [(f"{split}{variant:02d}{n}", variant) for n in range(count) for variant in (3, 0, 4, 1, 2)]
        text(folder / f"images_variant_{split}.txt", *(f"{image} {variants[variant]}" for image, variant in rows))
        put(*(folder / f"images/{image}.jpg" for image, _ in rows))
    return tmp_path


def test_aircraft_needs_no_split_file(aircraft):
    task = check_images(load_task(card_named("fgvc_aircraft"), aircraft))
    assert task.classes.names == ("707-320", "A300B4", "Challenger 600", "F-16A/B", "DC-9-30")
    assert task.classes.templates == (TEMPLATES["fgvc_aircraft"],)
    assert [len(split) for split in (task.train, task.val, task.test)] == [20, 15, 10]
    assert listed(task.train[:2]) == [("images/train030.jpg", 3), ("images/train000.jpg", 0)]
    drawn = few_shot(task, 2, 1)
    random.seed(1)
    assert listed(drawn.train) == published_draw(task.train, 2)
    assert listed(drawn.val) == published_draw(task.val, 2)
    assert base_novel(drawn)[1].classes.names == ("F-16A/B", "DC-9-30")
    with pytest.raises(ConfigError, match="needs no split file"):
        split_of_ones_own(card_named("fgvc_aircraft"), aircraft / "fgvc_aircraft", 1)


def test_an_unlisted_variant_is_named(aircraft):
    text(aircraft / "fgvc_aircraft/images_variant_val.txt", "x 747-400")
    with pytest.raises(DataError, match=r"images_variant_val\.txt: the variant '747-400' is not in variants"):
        load_task(card_named("fgvc_aircraft"), aircraft)


# --- ImageNet and its variants ---------------------------------------------------------------------------------------

NAMES = {"n01440764": "tench", "n01443537": "goldfish", "n01484850": "great white shark", "n01491361": "tiger shark"}


@pytest.fixture
def imagenet(tmp_path) -> Path:
    folder = tmp_path / "imagenet"
    text(folder / "classnames.txt", *(f"{wnid} {NAMES[wnid]}" for wnid in reversed(NAMES)))
    for wnid in reversed(NAMES):
        put(*(folder / f"images/train/{wnid}/{wnid}_{number}.JPEG" for number in (2, 10, 1, 3, 20, 4)))
        put(*(folder / f"images/val/{wnid}/ILSVRC2012_val_{number:08d}.JPEG" for number in (1, 2)))
    return tmp_path


def with_reader(name: str, **options):
    from dataclasses import replace

    card = card_named(name)
    return replace(card, reader={**card.reader, **options})


def test_imagenet_by_sorted_ids_and_sorted_files(imagenet, caplog):
    with caplog.at_level(logging.WARNING):
        task = check_images(load_task(card_named("imagenet"), imagenet))
    assert task.classes.names == tuple(NAMES.values())
    assert task.classes.templates == (TEMPLATES["imagenet"],)
    assert [path for path, label in listed(task.train) if label == 0] == [
        f"images/train/n01440764/n01440764_{number}.JPEG" for number in (1, 10, 2, 20, 3, 4)
    ]
    assert listed(task.test)[:2] == [(f"images/val/n01440764/ILSVRC2012_val_0000000{n}.JPEG", 0) for n in (1, 2)]
    assert "depended on the order of folders on disk and are other images" in caplog.text
    drawn = few_shot(task, 3, 1)
    random.seed(1)
    assert listed(drawn.train) == published_draw(task.train, 3)
    assert [half.classes.names for half in base_novel(drawn)] == [
        ("tench", "goldfish"),
        ("great white shark", "tiger shark"),
    ]


def test_imagenets_published_validation_images_are_its_test_images(imagenet):
    task = load_task(card_named("imagenet"), imagenet)
    assert task.val == task.test


def test_imagenet_draws_from_a_list(imagenet, tmp_path):
    paths = ["n01443537/n01443537_20.JPEG", "images/train/n01440764/n01440764_3.JPEG"]
    text(tmp_path / "drawn.txt", *paths)
    task = load_task(with_reader("imagenet", drawn=str(tmp_path / "drawn.txt")), imagenet)
    assert listed(task.train) == [("images/train/n01443537/n01443537_20.JPEG", 1), (paths[1], 0)]
    text(tmp_path / "drawn.txt", *paths, "n01440764/x.JPEG")
    with pytest.raises(DataError, match=r"drawn\.txt: 1 of 3 images are not there, the first images/train/n01440764/x"):
        load_task(with_reader("imagenet", drawn=str(tmp_path / "drawn.txt")), imagenet)


def test_imagenet_without_its_list_takes_open_clips_names(imagenet, caplog):
    (imagenet / "imagenet/classnames.txt").unlink()
    with caplog.at_level(logging.WARNING):
        task = load_task(card_named("imagenet"), imagenet)
    assert task.classes.names == tuple(NAMES.values())
    assert "takes the class names that come with open_clip" in caplog.text


def test_open_clips_names_are_the_published_ones_with_two_pairs_alike(test_data, tmp_path, caplog):
    from promptcal.data.readers.imagenet import ImageNetVariant, imagenet_names

    names = imagenet_names("imagenet", tmp_path / "imagenet/classnames.txt")
    published = json.loads((test_data / "splits/class_names.json").read_text())["imagenet"]
    assert [names[wnid] for wnid in sorted(names)] == list(names.values()) == published
    put(tmp_path / "v2/images/0/x.jpeg", tmp_path / "v2/images/999/x.jpeg")
    with caplog.at_level(logging.WARNING):
        task = ImageNetVariant("images", numbered=True).read("v2", tmp_path / "v2", ("a photo of a {}.",))
    assert len(task.classes) == 1000
    assert listed(task.test) == [("images/0/x.jpeg", 0), ("images/999/x.jpeg", 999)]
    assert "classes 657 and 744 are both called 'missile'" in caplog.text
    assert "classes 836 and 837 are both called 'sunglasses'" in caplog.text


@pytest.mark.parametrize("name", ["imagenetv2", "imagenet_sketch", "imagenet_a", "imagenet_r"])
def test_the_variants_are_test_sets_of_some_classes(imagenet, name):
    card = card_named(name)
    ids = list(NAMES) if name in ("imagenetv2", "imagenet_sketch") else list(NAMES)[1:3]
    images = imagenet / card.folder / card.reader["images"]
    for wnid in ids:
        put(images / (str(ids.index(wnid)) if name == "imagenetv2" else wnid) / f"{wnid}.jpg")
    (images / "README.txt").write_text("not a class")
    task = check_images(load_task(card, imagenet))
    assert task.classes.names == tuple(NAMES[wnid] for wnid in ids)
    assert task.classes.templates == (TEMPLATES[name],)
    assert [(Path(path).stem, label) for path, label in listed(task.test)] == [(w, n) for n, w in enumerate(ids)]
    assert task.train == task.val == ()
    with pytest.raises(DataError, match=f"'{name}' has no training images to draw from"):
        few_shot(task, 1, 1)


def test_folders_that_are_no_classes_of_imagenet_are_named(imagenet):
    images = imagenet / "imagenet-adversarial/imagenet-a"
    put(images / "n01440764/x.jpg", images / "n99999999/x.jpg")
    with pytest.raises(DataError, match=r"class folder n99999999 of 'imagenet_a' has no name in"):
        load_task(card_named("imagenet_a"), imagenet)
    put(imagenet / "imagenetv2/imagenetv2-matched-frequency-format-val/4/x.jpg")
    with pytest.raises(DataError, match=r"format-val/4 is not one of the classes 0 to 3"):
        load_task(card_named("imagenetv2"), imagenet)


def test_imagenets_flat_validation_folder_is_told(imagenet):
    import shutil

    shutil.rmtree(imagenet / "imagenet/images/val")
    put(imagenet / "imagenet/images/val/ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(DataError, match=r"images/val has no class folders; 'imagenet' needs .*images/val/CLASS/IMAGE"):
        load_task(card_named("imagenet"), imagenet)


# --- the real ones ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dtd", "eurosat"])
def test_the_folders_of_real_data_name_the_classes_of_the_published_split(test_data, name):
    """The images at hand are a part of the data set; names by folder agree with those of the published split file."""
    card = card_named(name)
    task = load_task(card, test_data / "images")
    made = split_of_ones_own(card, test_data / "images" / card.folder, 1)
    images = card.reader["images"]
    by_path = {f"{images}/{path}": called for split in ("train", "val", "test") for path, _, called in made[split]}
    for sample in (*task.train, *task.val, *task.test):
        assert by_path[sample.path].replace("_", " ") == task.classes.names[sample.label]
