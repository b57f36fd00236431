import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptcal.data.class_names import listed, normalise_class_names
from promptcal.errors import DataError


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("air_plane", "air plane"),
        (" dog ", "dog"),
        ("polka-dotted", "polka-dotted"),
        ("AC/DC", "AC/DC"),
        ("F-16A", "F-16A"),
        ("a  b\tc", "a b c"),
        ("__x__", "x"),
        ("İstanbul", "İstanbul"),
        ("cafe\u0301", "caf\u00e9"),
        ("🐶", "🐶"),
        ("{braces}", "{braces}"),
    ],
)
def test_one_name(raw, name):
    assert normalise_class_names([raw]) == (name,)


@pytest.mark.parametrize("empty", ["", "  ", "_", "\u00a0\n"])
def test_empty_name_is_refused_with_its_label(empty):
    with pytest.raises(DataError, match="class 1 has an empty name"):
        normalise_class_names(["cat", empty])


@pytest.mark.parametrize("twin", ["crane", "Crane", "cr_ane", " crane "])
def test_equal_names_are_refused_with_both_labels(twin):
    names = ["cr ane" if twin == "cr_ane" else "crane", "dog", twin]
    with pytest.raises(DataError, match=r"classes 0 .* and 2 "):
        normalise_class_names(names)


@pytest.mark.parametrize(
    "token",
    [
        "<|endoftext|>",
        "<end_of_text>",
        "<START_OF_TEXT>",
        "x <|startoftext|> y",
        "&lt;end_of_text&gt;",
        "&amp;lt;end_of_text&amp;gt;",
    ],
)
def test_special_tokens_are_refused(token):
    with pytest.raises(DataError, match="token of the tokenizer's own"):
        normalise_class_names(["cat", token])


def test_the_refused_tokens_are_those_of_the_tokenizer():
    from open_clip.tokenizer import SimpleTokenizer

    tokenizer = SimpleTokenizer()
    for special in tokenizer.all_special_ids:
        with pytest.raises(DataError, match="token of the tokenizer's own"):
            normalise_class_names([tokenizer.decoder[special]])


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=5))
def test_normalising_twice_changes_nothing_more(raw):
    try:
        names = normalise_class_names(raw)
    except DataError:
        return
    assert normalise_class_names(names) == names
    assert all(name == name.strip() and "_" not in name for name in names)
    assert len({name.lower() for name in names}) == len(raw)


def test_messages_list_the_first_names_and_count_the_others():
    names = [f"class {label}" for label in range(1000)]
    assert listed(names[:2]) == "class 0, class 1"
    assert listed(names[:10]).endswith("class 8, class 9")
    assert listed(names) == f"{', '.join(names[:10])} and 990 more"
