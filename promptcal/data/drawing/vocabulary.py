"""The names of everything that can be drawn."""

import string
from typing import Final, Literal

Style = Literal["pretrain", "shifted"]
Source = Literal["font", "pen"]

COLOUR_VALUES: Final[dict[str, tuple[int, int, int]]] = {
    "red": (220, 35, 35),
    "orange": (250, 140, 20),
    "yellow": (245, 225, 45),
    "green": (45, 160, 55),
    "cyan": (60, 215, 225),
    "blue": (40, 75, 215),
    "purple": (130, 45, 165),
    "pink": (250, 140, 190),
    "brown": (125, 75, 35),
    "white": (245, 245, 245),
    "grey": (135, 135, 135),
    "black": (20, 20, 20),
}

COLOURS: Final[tuple[str, ...]] = tuple(COLOUR_VALUES)
PATTERNS: Final[tuple[str, ...]] = ("solid", "striped", "dotted", "hollow")
SHAPES: Final[tuple[str, ...]] = (
    "circle",
    "square",
    "triangle",
    "diamond",
    "hexagon",
    "star",
    "heart",
    "cross",
    "moon",
    "arrow",
    "house",
    "drop",
)
DIGIT_NAMES: Final[tuple[str, ...]] = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
)
GLYPHS: Final[str] = string.digits + string.ascii_uppercase + string.ascii_lowercase
STYLES: Final[tuple[Style, ...]] = ("pretrain", "shifted")
MAX_SEVERITY: Final[int] = 5


def check_choice(what: str, value: str, known: tuple[str, ...] | str) -> None:
    """Raise a ValueError that lists the known values when `value` is not one of them."""
    if value == "" or value not in known:
        raise ValueError(f"Unknown {what} {value!r}: choose one of {', '.join(known)}.")


def check_severity(severity: int) -> None:
    """Raise a ValueError unless `severity` lies in 0..MAX_SEVERITY."""
    if not 0 <= severity <= MAX_SEVERITY:
        raise ValueError(f"Severity {severity} is out of range: it must lie between 0 and {MAX_SEVERITY}.")
