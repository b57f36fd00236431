"""What the numbers say and what they do not, in plain sentences that are computed from them."""

from collections.abc import Sequence

from promptcal.report.comparisons import BETTER, best
from promptcal.report.estimates import Compared, Estimate
from promptcal.report.names import metric_name
from promptcal.report.results import NOISE_FLOOR, Group, H, Number, Results, Row

ASKED = (
    (Number("novel", "ece"), "Lowest novel ECE"),
    (Number("novel", "nll"), "Lowest novel NLL"),
    (H, "Highest harmonic mean of accuracies"),
)
"""What a base-to-novel table is read for."""


def read(results: Results, group: Group, compared: Compared) -> list[str]:
    """Sentences on one group: the best rows, what training did to novel ECE, what TS did, noise, and how many runs."""
    rows = results.rows(group)
    sentences = [sentence for number, phrase in ASKED if (sentence := _best(results, group, compared, number, phrase))]
    sentences += _against_zero_shot(rows, compared)
    sentences += _temperature(rows, compared)
    sentences += _noise(results, group, rows, compared)
    sentences += _runs(results, group, rows)
    return sentences


def percent(value: float, *, signed: bool = False) -> str:
    """A fraction in percent, to one digit."""
    return f"{value * 100:{'+' if signed else ''}.1f}".replace("-", "−")


def _show(number: Number, value: float) -> str:
    return f"{value:.3f} nats" if number.metric == "nll" else f"{percent(value)} %"


def _best(results: Results, group: Group, compared: Compared, number: Number, phrase: str) -> str | None:
    """Which row is best in a number, and whether the paired tests let it be called so."""
    rows = results.rows(group)
    values = {row: e.value for row in rows if (e := compared.estimates.get((row, number)))}
    if len(values) < 2:
        return None
    top = values[best(values, BETTER[number.metric])]
    names = [row.name for row, value in values.items() if value == top]
    equal = f" (and, equal there, {_join(names[1:])})" if names[1:] else ""
    if compared.winners.get(number):
        verdict = "; the paired tests support it against every other row"
    elif max(len(results.of(group, row)) for row in rows) > 1:
        verdict = "; the paired tests do not separate it from every other row"
    else:
        verdict = ""
    return f"{phrase}: {names[0]}{equal}, {_show(number, top)}{verdict}."


def _against_zero_shot(rows: Sequence[Row], compared: Compared) -> list[str]:
    """What each trained method, before any calibrator, did to novel ECE and accuracy."""
    plain = [row for row in rows if row.calibrator == "none"]
    reference = next((row for row in plain if row.method == "zero_shot"), None)
    if reference is None:
        return []
    sentences = []
    for row in plain:
        parts = [_change(reference, row, Number("novel", metric), compared) for metric in ("ece", "accuracy")]
        known = [part for part in parts if part is not None]
        if known:
            sentences.append(f"Compared with zero-shot, {row.method_name} {' and '.join(known)}.")
    return sentences


def _change(reference: Row, row: Row, number: Number, compared: Compared) -> str | None:
    """How a number changed, with the 95 % interval of the paired difference in points."""
    found = compared.differences.get((row, reference, number))
    if found is None or row == reference:
        return None
    before, after = (percent(compared.estimates[one, number].value) for one in (reference, row))
    low, high = found.low, found.high
    interval = f"{percent(low, signed=True)} to {percent(high, signed=True)} points"
    name = f"{number.split} {metric_name(number.metric)}"
    if low <= 0 <= high:
        return f"left {name} where it was, as far as one can tell ({before} to {after} %, {interval})"
    return f"{'raised' if low > 0 else 'lowered'} {name} from {before} to {after} % ({interval})"


def _temperature(rows: Sequence[Row], compared: Compared) -> list[str]:
    """Where a temperature fitted on base validation made the novel NLL worse."""
    number = Number("novel", "nll")
    worse = []
    for row in rows:
        after = compared.estimates.get((row, number))
        before = compared.estimates.get((row._replace(calibrator="none"), number))
        if row.calibrator == "temperature" and before and after and after.value > before.value:
            worse.append(f"{row.method_name} (from {before.value:.3f} to {after.value:.3f} nats)")
    if not worse:
        return []
    return [f"A temperature fitted on base validation images raised the novel NLL of {_join(worse)}."]


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
