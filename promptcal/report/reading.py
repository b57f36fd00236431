"""What the numbers say and what they do not, in plain sentences that are computed from them."""

from collections.abc import Sequence

from promptcal.report.comparisons import BETTER, FEWEST_DATA_SETS, best
from promptcal.report.estimates import Compared, Estimate, references_of
from promptcal.report.names import metric_name
from promptcal.report.results import NOISE_FLOOR, Group, H, Number, Results, Row
from promptcal.report.transfers import OTHERS


def read(results: Results, group: Group, compared: Compared) -> list[str]:
    """Sentences on one group: the best rows, what training did, what TS did, noise, and how many runs there are."""
    rows = results.rows(group)
    focus = _focus(results.splits(group), results.others(group))
    several = max(len(results.of(group, row)) for row in rows) > 1
    return [
        *_best_rows(rows, compared, focus, tested=several),
        *_against_zero_shot(rows, compared, focus),
        *_temperature(rows, compared, focus),
        *_noise(results, group, rows, compared),
        *_runs(results, group, rows),
    ]


def read_average(
    rows: Sequence[Row], splits: Sequence[str], others: Sequence[str], mean: Compared, groups: Sequence[Compared]
) -> list[str]:
    """Sentences on the average over data sets: the best rows, and on how many data sets training raised the ECE."""
    focus = _focus(splits, others)
    sentences = _best_rows(rows, mean, focus, tested=len(groups) >= FEWEST_DATA_SETS)
    references = references_of(rows)
    for row in rows:
        if row.calibrator != "none" or row in references:
            continue
        for split in focus:
            number = Number(split, "ece")
            found = [
                one.differences[row, ref, number]
                for one in groups
                for ref in references
                if (row, ref, number) in one.differences
            ]
            higher = sum(one.value > 0 for one in found)
            if found:
                sentences.append(
                    f"{row.method_name} has a higher {split} ECE than zero-shot on {higher} of {len(found)} data sets."
                )
    return sentences


def _focus(splits: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """The splits that a reading is about: novel classes where there are some, the mean of data sets not trained on."""
    if "novel" in splits:
        return ("novel",)
    return (OTHERS,) if len(others) > 1 else tuple(others or splits)


def percent(value: float, *, signed: bool = False) -> str:
    """A fraction in percent, to one digit."""
    return f"{value * 100:{'+' if signed else ''}z.1f}".replace("-", "−")


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
            tops = best(values, BETTER[number.metric])
            names = [row.name for row in tops]
            equal = f" (and, equal there, {_join(names[1:])})" if names[1:] else ""
            backed = "support it against" if compared.winners.get(number) else "do not separate it from"
            verdict = f"; the tests {backed} every other row" if tested else ""
            sentences.append(f"{phrase}: {names[0]}{equal}, {_show(number, values[tops[0]])}{verdict}.")
    return sentences


def _against_zero_shot(rows: Sequence[Row], compared: Compared, focus: Sequence[str]) -> list[str]:
    """What each trained method, before any calibrator, did to ECE and accuracy."""
    references = references_of(rows)
    numbers = [Number(split, metric) for split in focus for metric in ("ece", "accuracy")]
    sentences = []
    for row in rows:
        if row.calibrator == "none" and row not in references:
            shared = next((ref for ref in references if (row, ref, numbers[0]) in compared.differences), None)
            parts = [_change(shared, row, number, compared) for number in numbers] if shared else []
            known = [part for part in parts if part is not None]
            sentences += [f"Compared with zero-shot, {row.method_name} {_join(known)}."] if known else []
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
        return f"shows no clear change in {name} ({before} to {after} %, {interval})"
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
            if row.calibrator == "temperature" and before and after and round(after.value, 3) > round(before.value, 3):
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
