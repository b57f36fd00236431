"""Domain shift: train on one data set, test on other images of the same classes."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from promptcal.config import register
from promptcal.data.protocols.contract import Described, Draw, Splits, drawn, named_targets
from promptcal.errors import ConfigError, DataError, nearest
from promptcal.types import ClassNames, Sample, Task

IMAGENETS = ("imagenetv2", "imagenet_sketch", "imagenet_a", "imagenet_r")


@register("protocol", "domain_shift")
def domain_shift(
    task: Task, draw: Draw, targets: Sequence[Described] = IMAGENETS, classes: str = "own", test: str = "split"
) -> Splits:
    """Train on few shots of all classes, test on the same data set and on others that have its classes or some of them.

    Classes are matched by name and stand in the order of the trained data set. The splits have the names of the data
    sets; the one that is trained on comes first. A pair of folders serves as well, such as natural and medical images
    of the same classes.

    Args:
        task: the data set to train on.
        draw: shots, seed, where validation images come from, and what reads the others.
        targets: the data sets to test on: names of cards, or mappings such as ``{name: xray, path: /my/xray}``.
        classes: ``own`` = each among the classes that it has, as published; ``source`` = among all trained classes.
        test: ``split`` = the test split of the trained data set; ``undrawn`` = that and what was not drawn of it.

    Raises:
        ConfigError: no targets, an unknown one, two of one name, or an unknown ``classes``.
        DataError: a target that cannot be read, or has a class that the trained data set has not.

    References:
        Zhou et al., "Learning to Prompt for Vision-Language Models", IJCV 2022, arXiv 2109.01134.
    """
    if not targets:
        raise ConfigError("there is nothing to test on; name data sets, such as protocol.targets=[imagenetv2].")
    if classes not in ("own", "source"):
        raise ConfigError(f"unknown protocol.classes '{classes}'; choose own or source.")
    few, notes = drawn(task, draw, test)
    others = [in_terms_of(few, draw.read(described), all_classes=classes == "source") for described in targets]
    return Splits(train=few, targets=named_targets([few, *others]), notes=notes)


def in_terms_of(source: Task, target: Task, *, all_classes: bool) -> Task:
    """The test images of a target with its classes in the order of the source's, or with all classes of the source.

    Of a name that several classes have, the first in the target is the first in the source, and so on.

    Raises:
        DataError: the target has a class that the source has not, or one of several of the same name.
    """
    places: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(source.classes.names):
        places[name].append(place)
    counts = Counter(target.classes.names)
    for name, count in counts.items():
        if count > len(places.get(name, ())):
            raise DataError(_strange(name, source, target))
        if all_classes and count < len(places[name]):
            raise DataError(
                f"'{target.name}' has {count} of the {len(places[name])} classes of '{source.name}' that are called "
                f"'{name}', and nothing says which; use protocol.classes=own."
            )
    seen: Counter[str] = Counter()
    label_of = []
    for name in target.classes.names:
        label_of.append(places[name][seen[name]])
        seen[name] += 1
    kept = range(len(source.classes)) if all_classes else sorted(label_of)
    new = {place: label for label, place in enumerate(kept)}
    names = ClassNames(tuple(source.classes.names[place] for place in kept), target.classes.templates)
    test = tuple(Sample(sample.path, new[label_of[sample.label]]) for sample in target.test)
    return target.replace(classes=names, train=(), val=(), test=test)


def _strange(name: str, source: Task, target: Task) -> str:
    """The sentence for a class of a target that its source has not."""
    known = set(source.classes.names)
    if name in known:
        return f"'{target.name}' has the class '{name}' more often than '{source.name}'; give the classes names apart."
    meant = nearest(name, known)
    hint = f" (the nearest is '{meant}')" if meant else ""
    return (
        f"'{target.name}' has the class '{name}', which is not among the {len(known)} classes of '{source.name}'"
        f"{hint}; a domain shift keeps the classes, protocol=cross_dataset takes any."
    )
