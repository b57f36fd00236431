"""promptcal: make vision-language models say how sure they really are."""

__version__ = "0.1.0"
