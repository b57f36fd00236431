import pytest

from promptcal.report.comparisons import Difference
from promptcal.report.estimates import Compared, Estimate, compare
from promptcal.report.reading import percent, read, read_average
from promptcal.report.results import H, Number, Row, read_results
from promptcal.report.samples import read_samples


@pytest.fixture(scope="module")
def results(study):
    return read_results(study)


def reading_of(results):
    samples = {run.name: read_samples(run) for run in results.runs}
    (group,) = results.groups
    compared = compare(results, group, samples, 200)
    return read(results, group, compared), compared


def test_the_best_rows_are_named_with_what_the_tests_say(results):
    sentences, compared = reading_of(results)
    for number, phrase in (
        (Number("novel", "ece"), "Lowest novel ECE"),
        (Number("novel", "nll"), "Lowest novel NLL"),
        (H, "Highest harmonic mean of accuracies"),
    ):
        (sentence,) = (one for one in sentences if one.startswith(phrase))
        values = {row: e.value for (row, of), e in compared.estimates.items() if of == number}
        top = (max if number == H else min)(values, key=values.get)
        assert sentence.startswith(f"{phrase}: {top.name}")
        assert ("support" in sentence) == bool(compared.winners[number])


def test_what_training_did_is_said_with_its_interval(results):
    sentences, compared = reading_of(results)
    (sentence,) = (one for one in sentences if one.startswith("Compared with zero-shot, CoOp lowered novel ECE"))
    found = compared.differences[Row("coop", "", "none"), Row("zero_shot", "", "none"), Number("novel", "ece")]
    assert f"({percent(found.low, signed=True)} to {percent(found.high, signed=True)} points)" in sentence


def test_one_run_is_said_to_be_one_run(study):
    sentences, _ = reading_of(read_results([folder for folder in study if folder.config.seed == 1]))
    assert sentences[-1].startswith("Each method was run once")
    assert not any("tests" in sentence for sentence in sentences)


def test_unequal_numbers_of_runs_are_said(study):
    unequal = [folder for folder in study if folder.config.seed == 1 or folder.config.choices.method == "zero_shot"]
    sentences, _ = reading_of(read_results(unequal))
    assert "zero-shot CLIP 3, CoOp 1 and CoOp + margin + moments 1" in sentences[-1]


def test_a_temperature_that_harms_novel_classes_is_said(results):
    sentences, compared = reading_of(results)
    number = Number("novel", "nll")
    rows = {row.method_name: row for row, of in compared.estimates if of == number and row.calibrator == "temperature"}
    for name, row in rows.items():
        before = compared.estimates[row._replace(calibrator="none"), number].value
        worse = compared.estimates[row, number].value > before
        assert any(f"{name} (from {before:.3f} to" in sentence for sentence in sentences) == worse


def test_averages_count_the_data_sets_on_which_training_raised_the_ece():
    zero_shot, coop = Row("zero_shot", "", "none"), Row("coop", "", "none")
    number = Number("novel", "ece")

    def one(before, after):
        values = {(zero_shot, number): Estimate(before, None, 1), (coop, number): Estimate(after, None, 1)}
        change = Difference(coop, zero_shot, number, after - before, after - before - 0.01, after - before + 0.01)
        return Compared(values, {(coop, zero_shot, number): change}, {})

    sentences = read_average([zero_shot, coop], ("base", "novel"), (), one(0.1, 0.2), [one(0.1, 0.3), one(0.1, 0.05)])
    assert sentences[-1] == "CoOp has a higher novel ECE than zero-shot on 1 of 2 data sets."
