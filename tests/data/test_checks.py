import logging

import pytest

from promptcal.data import check_images
from promptcal.errors import DataError


def test_a_whole_data_set_passes_as_it_is(toy_task):
    assert check_images(toy_task) is toy_task


def test_missing_images_are_counted_and_listed_in_one_sentence(toy, toy_task):
    for number in range(7):
        (toy / "images" / "cat" / f"{number:02d}.png").rename(toy / f"{number}.png")
    with pytest.raises(
        DataError, match=r"7 of 72 images of 'toy' are missing under .*toy: images/cat/00\.png"
    ) as caught:
        check_images(toy_task)
    message = str(caught.value)
    assert "images/cat/02.png, ..." in message
    assert "images/cat/03.png" not in message
    assert "\n" not in message


def test_missing_images_are_skipped_when_asked_and_counted_in_the_log(toy, toy_task, caplog):
    for number in (0, 11):
        (toy / "images" / "fox" / f"{number:02d}.png").unlink()
    with caplog.at_level(logging.WARNING):
        left = check_images(toy_task, missing="skip")
    assert (len(left.train), len(left.val), len(left.test)) == (35, 12, 23)
    assert "2 of 72 images" in caplog.text
    assert check_images(left) is left


def test_images_in_memory_need_no_check():
    from promptcal.data.cards import card_named, load_task

    task = load_task(card_named("digits"))
    assert check_images(task) is task
