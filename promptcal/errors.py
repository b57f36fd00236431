"""The errors people meet: one clear sentence that names what is at fault and what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class PromptcalError(ValueError):
    """Something the user can mend: bad input, a missing file, an impossible combination."""


class ConfigError(PromptcalError):
    """A key, group, option or value of the configuration is wrong."""


class DataError(PromptcalError):
    """A data set, split, image or prediction file is wrong."""


class MissingField(PromptcalError):
    """A record lacks an optional field that somebody asked for by name."""


class NotFitted(PromptcalError):
    """A calibrator was asked to transform before it was fitted."""


class NumericalError(PromptcalError):
    """A number became NaN or infinite where none may be; the run stops."""


class RunBusy(PromptcalError):
    """Another process is doing this run."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was most likely meant to be, or None."""
    matches = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """One sentence for an unknown name: what it is, the nearest known one, and all that are known."""
    known = sorted(known)
    meant = nearest(name, known)
    hint = f" Did you mean '{meant}'?" if meant else ""
    return f"unknown {kind} '{name}'.{hint} Known: {', '.join(known) or 'none'}."
