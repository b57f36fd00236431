"""What the numbers say and what they do not, in plain sentences that are computed from them."""

from collections.abc import Sequence

from promptcal.report.comparisons import BETTER, FEWEST_DATA_SETS, best
from promptcal.report.estimates import Compared, Estimate
from promptcal.report.names import metric_name
from promptcal.report.results import NOISE_FLOOR, Group, H, Number, Results, Row


def read(results: Results, group: Group, compared: Compared) -> list[str]:
    """Sentences on one group: the best rows, what training did, what TS did, noise, and how many runs there are."""
    rows = results.rows(group)
    focus = _focus(results.splits(group))
    several = max(len(results.of(group, row)) for row in rows) > 1
    return [
        *_best_rows(rows, compared, focus, tested=several),
        *_against_zero_shot(rows, compared, focus),
        *_temperature(rows, compared, focus),
        *_noise(results, group, rows, compared),
        *_runs(results, group, rows),
    ]


def read_average(rows: Sequence[Row], splits: Sequence[str], mean: Compared, groups: Sequence[Compared]) -> list[str]:
    """Sentences on the average over data sets: the best rows, and on how many data sets training raised the ECE."""
    focus = _focus(splits)
    sentences = _best_rows(rows, mean, focus, tested=len(groups) >= FEWEST_DATA_SETS)
    reference = _zero_shot(rows)
    for row in rows:
        if reference is None or row.calibrator != "none" or row == reference:
            continue
        for split in focus:
            number = Number(split, "ece")
            pairs = [(one.estimates.get((row, number)), one.estimates.get((reference, number))) for one in groups]
            higher = [ours.value > theirs.value for ours, theirs in pairs if ours and theirs]
            if higher:
                sentences.append(
                    f"{row.method_name} has a higher {split} ECE than zero-shot on {sum(higher)} of {len(higher)} data "
                    f"sets."
                )
    return sentences


def _focus(splits: Sequence[str]) -> tuple[str, ...]:
    """The splits that a reading is about: novel classes where there are some."""
    return ("novel",) if "novel" in splits else tuple(splits)


def _zero_shot(rows: Sequence[Row]) -> Row | None:
    return next((row for row in rows if (row.method, row.calibrator) == ("zero_shot", "none")), None)


def percent(value: float, *, signed: bool = False) -> str:
    """A fraction in percent, to one digit."""
    return f"{value * 100:{'+' if signed else ''}.1f}".replace("-", "−")


def _show(number: Number, value: float) -> str:
    return f"{value:.3f} nats" if number.metric == "nll" else f"{percent(value)} %"


def _best_rows(rows: Sequence[Row], compared: Compared, focus: Sequence[str], *, tested: bool) -> list[str]:
    """Which rows are best in what is asked first, and whether the tests let them be called so."""
    asked = [(Number(split, "ece"), f"Lowest {split} ECE") for split in focus]
    asked += [(Number(split, "nll"), f"Lowest {split} NLL") for split in focus]
    asked.append((H, "Highest harmonic mean of accuracies"))
    sentences = []
    for number, phrase in asked:
        values = {row: e.value for row in rows if (e := compared.estimates.get((row, number)))}
        if len(values) > 1:
            top = values[best(values, BETTER[number.metric])]
            names = [row.name for row, value in values.items() if value == top]
            equal = f" (and, equal there, {_join(names[1:])})" if names[1:] else ""
            backed = "support it against" if compared.winners.get(number) else "do not separate it from"
            verdict = f"; the tests {backed} every other row" if tested else ""
            sentences.append(f"{phrase}: {names[0]}{equal}, {_show(number, top)}{verdict}.")
    return sentences


def _against_zero_shot(rows: Sequence[Row], compared: Compared, focus: Sequence[str]) -> list[str]:
    """What each trained method, before any calibrator, did to ECE and accuracy."""
    reference = _zero_shot(rows)
    numbers = [Number(split, metric) for split in focus for metric in ("ece", "accuracy")]
    sentences = []
    for row in rows:
        if reference is not None and row.calibrator == "none" and row != reference:
            parts = [part for number in numbers if (part := _change(reference, row, number, compared)) is not None]
            sentences += [f"Compared with zero-shot, {row.method_name} {_join(parts)}."] if parts else []
    return sentences


def _change(reference: Row, row: Row, number: Number, compared: Compared) -> str | None:
    """How a number changed, with the 95 % interval of the paired difference in points."""
    found = compared.differences.get((row, reference, number))
    if found is None:
        return None
    before, after = (percent(compared.estimates[one, number].value) for one in (reference, row))
    low, high = found.low, found.high
    interval = f"{percent(low, signed=True)} to {percent(high, signed=True)} points"
    name = f"{number.split} {metric_name(number.metric)}"
    if low <= 0 <= high:
        return f"left {name} where it was, as far as one can tell ({before} to {after} %, {interval})"
    return f"{'raised' if low > 0 else 'lowered'} {name} from {before} to {after} % ({interval})"


def _temperature(rows: Sequence[Row], compared: Compared, focus: Sequence[str]) -> list[str]:
    """Where a temperature fitted on base validation made the NLL worse."""
    sentences = []
    for split in focus:
        number = Number(split, "nll")
        worse = []
        for row in rows:
            after = compared.estimates.get((row, number))
            before = compared.estimates.get((row._replace(calibrator="none"), number))
            if row.calibrator == "temperature" and before and after and after.value > before.value:
                worse.append(f"{row.method_name} (from {before.value:.3f} to {after.value:.3f} nats)")
        if worse:
            sentences.append(f"A temperature fitted on validation images raised the {split} NLL of {_join(worse)}.")
    return sentences


def _noise(results: Results, group: Group, rows: Sequence[Row], compared: Compared) -> list[str]:
    """How large an ECE is by chance alone."""
    parts = []
    for split in results.splits(group):
        floors = [
            estimate.value
            for row in rows
            if isinstance(estimate := compared.estimates.get((row, Number(split, NOISE_FLOOR))), Estimate)
        ]
        counts = {run.counts[split] for run in results.runs if run.group == group and split in run.counts}
        if floors:
            shown = " to ".join(dict.fromkeys([percent(min(floors)), percent(max(floors))]))
            images = " to ".join(str(count) for count in dict.fromkeys([min(counts), max(counts)]))
            parts.append(f"{shown} % on the {images} {split} images")
    if not parts:
        return []
    return [
        f"A perfectly calibrated model with the same confidences would score an ECE of about {_join(parts)}: "
        f"ECEs near that are indistinguishable from none."
    ]


def _runs(results: Results, group: Group, rows: Sequence[Row]) -> list[str]:
    counts = {row: len(results.of(group, row)) for row in rows}
    if len(set(counts.values())) > 1:
        listed = _join(list(dict.fromkeys(f"{row.method_name} {count}" for row, count in counts.items())))
        return [f"The rows rest on different numbers of runs ({listed}); compare them only through the paired tests."]
    if max(counts.values()) == 1:
        return [
            "Each method was run once: the intervals cover the luck of the test images, not that of the seed, and no "
            "row is marked as best."
        ]
    return []


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
