"""Captions of the pre-training pictures, and which caption is true of which picture.

A picture is described by one row of FACTS, an int array of indices (UNKNOWN where a fact does not apply). A caption
states some of these facts: its row holds the facts it states and UNKNOWN elsewhere.
"""

import string
from typing import Final

import numpy as np
from numpy.typing import NDArray

from promptcal.data.drawing.canvas import background_names
from promptcal.data.drawing.vocabulary import COLOURS, DIGIT_NAMES, GLYPHS, PATTERNS, SHAPES

Facts = NDArray[np.int16]

FACTS: Final[tuple[str, ...]] = ("shape", "colour", "pattern", "character", "case", "source", "background", "quality")
UNKNOWN: Final = -1
CHARACTERS: Final[str] = string.digits + string.ascii_lowercase
BACKGROUNDS: Final[tuple[str, ...]] = background_names("pretrain")
SHAPE, COLOUR, PATTERN, CHARACTER, CASE, SOURCE, BACKGROUND, QUALITY = range(len(FACTS))
CLEAR, BLURRY = 0, 1
FONT, PEN = 0, 1
LOWER, UPPER = 0, 1

# In every form {} is the thing; the second entry is the chance of the form.
_FORMS: Final[tuple[tuple[str, float], ...]] = (
    ("a photo of a {}.", 0.24),
    ("a {}", 0.12),
    ("{}", 0.10),
    ("a picture of a {}.", 0.08),
    ("a drawing of a {}.", 0.08),
    ("an image of a {}", 0.06),
    ("this is a {}.", 0.06),
    ("a photo of the {}", 0.05),
    ("a small photo of one {}.", 0.05),
    ("there is a {} in the middle of this small picture.", 0.05),
    ("itap of a {}.", 0.05),
    ("a low resolution photo of a {}, seen from the front, in a simple little world of drawn things.", 0.06),
)
_FORM_NAMES: Final = tuple(form for form, _ in _FORMS)
_FORM_ODDS: Final = np.cumsum([chance for _, chance in _FORMS])
_THINGS: Final = ("shape", "object", "figure")


def glyph_facts(glyph: str) -> tuple[int, int]:
    """The indices of character and case of a glyph; digits have no case."""
    case = UNKNOWN if glyph.isdigit() else (UPPER if glyph.isupper() else LOWER)
    return CHARACTERS.index(glyph.lower()), case


def glyph_of(facts: Facts) -> str:
    """The glyph that a picture with these facts shows."""
    glyph = CHARACTERS[facts[CHARACTER]]
    return glyph.upper() if facts[CASE] == UPPER else glyph


def _shape_thing(facts: Facts, stated: Facts, rng: np.random.Generator) -> str:
    """The noun phrase for a shape, such as "red striped circle"; copies the facts it names into `stated`."""
    form = rng.random()
    named = [SHAPE]
    if form < 0.75:
        named.append(COLOUR)
    if form < 0.50 or form >= 0.85:
        named.append(PATTERN)
    words = []
    for fact, names in ((COLOUR, COLOURS), (PATTERN, PATTERNS)):
        if fact in named:
            stated[fact] = facts[fact]
            words.append(names[facts[fact]])
    if form < 0.75 and rng.random() < 0.06:
        return " ".join([*words, _THINGS[int(rng.integers(len(_THINGS)))]])
    stated[SHAPE] = facts[SHAPE]
    return " ".join([*words, SHAPES[facts[SHAPE]]])


def _glyph_thing(facts: Facts, stated: Facts, rng: np.random.Generator) -> str:
    """The noun phrase for a digit or letter, such as "seven", "handwritten three" or "capital letter k"."""
    stated[CHARACTER] = facts[CHARACTER]
    character = CHARACTERS[facts[CHARACTER]]
    if character.isdigit():
        word = DIGIT_NAMES[int(character)]
        forms = [word, word, word, f"number {word}", f"digit {word}", f'digit "{character}"', f"number {character}"]
    else:
        case = "capital" if facts[CASE] == UPPER else "small"
        forms = [f"letter {character}", f'letter "{character}"', f"{case} letter {character}", f"{case} {character}"]
    choice = int(rng.integers(len(forms)))
    if not character.isdigit() and choice >= 2:
        stated[CASE] = facts[CASE]
    thing = forms[choice]
    if rng.random() < 0.25:
        stated[SOURCE] = facts[SOURCE]
        thing = f"{'handwritten' if facts[SOURCE] == PEN else 'printed'} {thing}"
    elif facts[COLOUR] != UNKNOWN and rng.random() < 0.4:
        stated[COLOUR] = facts[COLOUR]
        thing = f"{COLOURS[facts[COLOUR]]} {thing}"
    return thing


def write_caption(facts: Facts, rng: np.random.Generator) -> tuple[str, Facts]:
    """A random true caption of a picture: the text and the row of facts it states."""
    stated = np.full(len(FACTS), UNKNOWN, dtype=np.int16)
    thing = (_shape_thing if facts[SHAPE] != UNKNOWN else _glyph_thing)(facts, stated, rng)
    form = _FORM_NAMES[int(np.searchsorted(_FORM_ODDS, rng.random() * _FORM_ODDS[-1], side="right"))]
    if facts[SOURCE] == PEN and rng.random() < 0.08:
        stated[SOURCE] = PEN
        form = "handwriting of a {}."
    if rng.random() < 0.08:
        stated[QUALITY] = facts[QUALITY]
        form = f"a {'blurry' if facts[QUALITY] == BLURRY else 'clear'} photo of a {{}}."
    if facts[BACKGROUND] != UNKNOWN and rng.random() < 0.08:
        stated[BACKGROUND] = facts[BACKGROUND]
        form = form.rstrip(".") + f" on a {BACKGROUNDS[facts[BACKGROUND]]} background."
    text = form.format(thing)
    return (text.replace(" a o", " an o").replace(" a e", " an e") if rng.random() < 0.5 else text), stated


def near_miss(facts: Facts, rng: np.random.Generator) -> Facts:
    """The facts of a picture with one of them (shape, colour or pattern; or the character) made false."""
    changed = facts.copy()
    if facts[SHAPE] != UNKNOWN:
        fact, count = ((SHAPE, len(SHAPES)), (COLOUR, len(COLOURS)), (PATTERN, len(PATTERNS)))[int(rng.integers(3))]
        changed[fact] = (facts[fact] + rng.integers(1, count)) % count
    else:
        first, count = (0, 10) if facts[CHARACTER] < 10 else (10, 26)
        changed[CHARACTER] = first + (facts[CHARACTER] - first + rng.integers(1, count)) % count
    return changed


def holds(pictures: Facts, captions: Facts) -> NDArray[np.bool_]:
    """The (pictures, captions) table of which caption is true of which picture."""
    stated = captions[None, :, :]
    return np.asarray(((stated == UNKNOWN) | (stated == pictures[:, None, :])).all(axis=2))


def all_words() -> str:
    """Every word and mark that a caption can hold, for collecting the tokens that are trained."""
    fixed = (
        *_FORM_NAMES,
        *COLOURS,
        *PATTERNS,
        *SHAPES,
        *DIGIT_NAMES,
        *GLYPHS,
        *_THINGS,
        *BACKGROUNDS,
        'number digit letter capital small printed handwritten " ". ",',
        "handwriting of a an blurry clear photo on background .",
    )
    return " ".join(fixed).replace("{}", "x .")
