"""Raw annotations: one file = what the annotation files of one data set say of its classes and splits."""

from promptcal.data.annotations.contract import Annotated, Annotations, Entry

__all__ = ["Annotated", "Annotations", "Entry"]
