"""The frozen texts that the terms of a recipe look at."""

from dataclasses import dataclass

from promptcal.errors import ConfigError, unknown

AVERAGES = ("normalised", "raw")
"""How the features of several templates become one: the mean of unit features, or of features as they are."""


@dataclass(frozen=True)
class Reference:
    """The frozen texts that a recipe's terms keep near, where they are not the data set's own templates.

    Attributes:
        templates: the texts; empty = those of the class list.
        average: ``normalised`` or ``raw`` (PromptSRC), see ``AVERAGES``.
    """

    templates: tuple[str, ...] = ()
    average: str = "normalised"

    def __post_init__(self) -> None:
        if self.average not in AVERAGES:
            raise ConfigError(unknown("reference.average", self.average, AVERAGES))
        for template in self.templates:
            if "{}" not in template:
                raise ConfigError(f"the reference template '{template}' has no '{{}}' for the class name.")
