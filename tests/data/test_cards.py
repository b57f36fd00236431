import dataclasses

import pytest
from omegaconf import OmegaConf

from promptcal.config import asset_path, options
from promptcal.data import load_task, read_card, size_warnings
from promptcal.data.cards import card_named, card_names
from promptcal.data.views import Augment
from promptcal.errors import ConfigError, DataError


@pytest.mark.parametrize("name", card_names())
def test_every_card_is_whole_and_composes(name):
    card = card_named(name)
    assert card.name == name
    assert all("{}" in template for template in card.templates)
    assert card.source
    assert card.licence
    assert card.reference
    assert name in options("dataset")
    if card.folder is None:
        task = load_task(card)
        assert not size_warnings(card, task)
        assert task.images.open(task.train[0].path).mode == "RGB"


@pytest.mark.parametrize("name", ["eurosat", "dtd"])
def test_the_real_layout_on_disk_loads_and_says_that_it_is_smaller(test_data, name):
    from promptcal.data import check_images

    card = card_named(name)
    task = check_images(load_task(card, test_data / "images"))
    assert len(task.classes) == 10
    assert task.images.open(task.test[-1].path).mode == "RGB"
    (warning,) = size_warnings(card, task)
    assert f"{len(task.train)} train images (expected {card.sizes['train']})" in warning


@pytest.mark.parametrize("name", ["eurosat", "dtd", "caltech101"])
def test_the_published_split_files_have_the_sizes_on_the_cards(test_data, name):
    card = card_named(name)
    assert size_warnings(card, load_task(card, test_data / "splits")) == []


def test_digits_in_real_folders_sort_by_number(test_data):
    task = load_task(dataclasses.replace(card_named("folder"), path=str(test_data / "images" / "mnist")))
    assert task.classes.names == tuple("0123456789")
    assert (len(task.train), len(task.val), len(task.test)) == (1000, 0, 1000)


def test_an_unknown_data_set_is_answered_with_the_nearest_and_the_way_to_ones_own():
    with pytest.raises(ConfigError, match=r"Did you mean 'eurosat'\?.*dataset=folder dataset\.path="):
        card_named("eurosta")


def test_a_card_as_a_composed_node(toy_card):
    assert read_card(OmegaConf.create(toy_card)) == read_card(toy_card)
    assert load_task(OmegaConf.create(toy_card)) == load_task(read_card(toy_card))


def test_root_and_folder_or_path(toy_card, toy):
    by_root = toy_card | {"path": None, "folder": "toy"}
    assert load_task(by_root, toy.parent) == load_task(by_root, str(toy.parent)) == load_task(toy_card)
    assert load_task(toy_card, "/nowhere") == load_task(toy_card)
    with pytest.raises(DataError, match=r"give data\.root=/parent \(its folder there is 'toy'\) or dataset\.path="):
        load_task(by_root)
    with pytest.raises(DataError, match=r"no folder /nowhere/toy for 'toy'; correct data\.root"):
        load_task(by_root, "/nowhere")
    with pytest.raises(DataError, match=r"no folder /nowhere for 'toy'; correct dataset\.path"):
        load_task(toy_card | {"path": "/nowhere"})


def test_ones_own_folder_is_asked_for_by_its_path_alone():
    with pytest.raises(DataError, match=r"'folder' is read from disk; give dataset\.path=/its/folder\."):
        load_task(card_named("folder"))


def test_a_task_without_test_images_is_refused(toy, toy_card):
    card = toy_card | {"reader": {"_target_": "promptcal.data.readers.image_folder.ImageFolder"}}
    (toy / "train" / "a").mkdir(parents=True)
    (toy / "images" / "cat" / "00.png").rename(toy / "train" / "a" / "00.png")
    (toy / "test" / "a").mkdir(parents=True)
    with pytest.raises(DataError, match="'toy' has no test images"):
        load_task(card)


def test_size_warnings_name_what_differs(toy_card):
    task = load_task(toy_card)
    assert size_warnings(toy_card, task) == []
    (warning,) = size_warnings(toy_card | {"sizes": {"train": 40, "test": 24}}, task)
    assert "36 train images (expected 40)" in warning
    assert "test" not in warning


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"template": ["x"]}, "key of the data card 'toy' 'template'. Did you mean 'templates'"),
        ({"templates": "a {}."}, "templates .* must be a list"),
        ({"templates": None}, "has no 'templates'"),
        ({"reader": None}, "has no 'reader'"),
        ({"sizes": {"trian": 3}}, "'trian'. Did you mean 'train'"),
        ({"augment": {"scales": [0.5, 1.0]}}, "'scales'. Did you mean 'scale'"),
        ({"augment": {"scale": 0.5}}, "must give augment as"),
        ({"augment": {"scale": [0.0, 1.0]}}, r"augment\.scale"),
        ({"augment": {"scale": [0.5, 1.5]}}, r"augment\.scale"),
        ({"augment": {"ratio": [2, 1]}}, r"augment\.ratio"),
        ({"augment": {"flip": 2}}, r"augment\.flip"),
        (
            {"reader": {"_target_": "promptcal.data.readers.split_json.SplitJson", "splits": "x"}},
            "Did you mean 'split'",
        ),
    ],
)
def test_a_faulty_card_is_one_sentence_with_its_name(toy_card, change, words):
    with pytest.raises(ConfigError, match=words) as caught:
        load_task(toy_card | change)
    assert "\n" not in str(caught.value)


def test_augment_falls_back_to_the_published_one_key_by_key(toy_card):
    assert read_card(toy_card).augment == Augment((0.08, 1.0), (3 / 4, 4 / 3), 0.5)
    assert read_card(toy_card | {"augment": {"flip": 0}}).augment == Augment(flip=0.0)
    assert card_named("digits").augment.flip == 0


def test_no_card_at_all():
    with pytest.raises(ConfigError, match="dataset=NAME"):
        read_card(None)


def test_recipes_with_templates_of_their_own_name_data_sets_that_exist():
    found = {}
    for path in asset_path("configs", "method").glob("*.yaml"):
        own = OmegaConf.select(OmegaConf.load(path), "reference.by_dataset", default={})
        found |= {(path.stem, name): templates for name, templates in own.items()}
    assert {name for _, name in found} <= set(card_names())
    assert all("{}" in template for templates in found.values() for template in templates)
    assert found["kgcoop", "dtd"] == ["a photo of a {}, a type of texture."]
    assert found["prograd", "oxford_pets"] == ["a type of pet, a photo of a {}."]
    assert found["prograd", "dtd"] == ["a texture of {}."]
    assert found["tcp", "fgvc_aircraft"] == ["a photo of an aircraft {}."]
