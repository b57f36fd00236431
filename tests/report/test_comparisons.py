from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from promptcal.report.comparisons import Difference, adjust, against_best, best, over_data_sets, paired, supported
from promptcal.report.estimates import average, compare
from promptcal.report.resampling import Measured
from promptcal.report.results import Draw, H, Number, Row, read_results
from promptcal.report.samples import read_samples
from promptcal.report.spreads import correlation

A, B, C, D = (Row(name, "", "none") for name in "abcd")
NUMBER = Number("novel", "ece")


def runs(values, *, images=0.0, seed=0, draws=None, replicates=400):
    values = np.asarray(values, dtype=np.float64)
    luck = np.random.default_rng(seed).normal(0, images, size=(len(values), replicates)) if images else 0.0
    draws = draws or tuple(Draw(run, None) for run in range(len(values)))
    return Measured(draws, values, values[:, None] + luck + np.zeros((len(values), replicates)))


def difference(row, reference, p, value=0.1):
    return Difference(row, reference, NUMBER, value, value - 0.05, value + 0.05, p)


def test_a_clear_difference_is_found_and_one_run_proves_nothing():
    clear = paired(A, B, NUMBER, runs([0.20, 0.21, 0.19, 0.20]), runs([0.10, 0.10, 0.11, 0.09]))
    assert clear.p < 0.001
    assert clear.value == pytest.approx(0.10)
    assert clear.low < 0.10 < clear.high
    assert paired(A, B, NUMBER, runs([0.2], images=0.001), runs([0.1], images=0.001)).p is None


def test_two_runs_that_happen_to_agree_prove_little():
    few = paired(A, B, NUMBER, runs([0.20, 0.21]), runs([0.1, 0.1]))
    assert few.p == pytest.approx(stats.ttest_1samp([0.10, 0.11], 0).pvalue, rel=0.1)


def test_only_shared_runs_are_compared():
    draws = (Draw(1, None), Draw(2, None), Draw(3, None))
    found = paired(A, B, NUMBER, runs([0.3, 0.2, 9.0], draws=draws), runs([0.1, 0.1], draws=draws[:2]))
    assert found.value == pytest.approx(0.15)
    elsewhere = (Draw(7, None), Draw(8, None))
    assert paired(A, B, NUMBER, runs([0.3, 0.2]), runs([0.1, 0.1], draws=elsewhere)) is None


def test_identical_rows_are_no_test():
    found = paired(A, B, NUMBER, runs([0.2, 0.3], images=0.01), runs([0.2, 0.3], images=0.01))
    assert found.identical
    assert found.p is None


def test_rounding_is_no_difference():
    ours = runs([0.2, 0.3, 0.25], images=0.01)
    found = paired(A, B, NUMBER, replace(ours, values=ours.values + 1e-9, replicates=ours.replicates + 1e-8), ours)
    assert found.identical
    assert found.p is None
    assert best({A: 0.3, B: 0.2 + 1e-12, C: 0.2}, "lower") == [B, C]


@pytest.mark.parametrize("images", [0.0, 0.02])
def test_without_a_difference_few_tests_reject(images):
    generator = np.random.default_rng(3)
    rejected = 0
    for trial in range(200):
        truth = generator.normal(0, 0.02, size=5)  # luck of five runs
        shown = truth + generator.normal(0, images, size=5)
        ours = runs(0.2 + shown, images=images, seed=trial)
        rejected += paired(A, B, NUMBER, ours, runs([0.2] * 5)).p < 0.05
    assert rejected <= 20  # 5 % of 200 is 10; 20 or fewer has probability above 0.998


def test_of_rows_that_are_alike_one_is_rarely_called_best():
    generator = np.random.default_rng(5)
    called = 0
    for _ in range(100):
        table = {Row(str(k), "", "none"): runs(generator.normal(0.2, 0.02, size=6)) for k in range(4)}
        called += bool(supported(list(table), against_best(table, NUMBER)))
    assert called <= 10


def test_holm_corrects_over_the_rows_that_were_tested():
    same = Difference(B, A, NUMBER, 0.0, 0.0, 0.0)
    found = adjust([difference(C, A, 0.01), same, difference(D, A, 0.03)])
    assert [one.adjusted for one in found] == [pytest.approx(0.02), None, pytest.approx(0.03)]


def test_a_winner_must_beat_all_others_and_takes_its_copies_along():
    same = Difference(B, A, NUMBER, 0.0, 0.0, 0.0)
    assert supported([A, B, C], adjust([same, difference(C, A, 0.001)])) == {A, B}
    assert supported([A, B, C], adjust([difference(B, A, 0.5), difference(C, A, 0.001)])) == set()
    assert supported([A, B, C], adjust([difference(C, A, 0.001)])) == set()  # B shares no run with A
    assert supported([A, B], [same]) == set()
    assert supported([A], []) == set()


def test_wilcoxon_over_data_sets_needs_six():
    values = {A: np.array([0.10, 0.12, 0.09, 0.20, 0.15, 0.11, 0.3]), B: np.array([0.2, 0.3, 0.1, 0.4, 0.3, 0.2, 0.35])}
    resampled = {row: one.mean() + np.linspace(-0.01, 0.01, 50) * k for k, (row, one) in enumerate(values.items())}
    (found,) = over_data_sets(values, resampled, NUMBER)
    assert (found.row, found.reference) == (B, A)
    assert found.p == found.adjusted == pytest.approx(stats.wilcoxon(values[B] - values[A]).pvalue)
    assert found.low < found.value < found.high
    (few,) = over_data_sets({row: one[:5] for row, one in values.items()}, resampled, NUMBER)
    assert few.p is None


def test_averages_are_the_means_of_their_columns(make_run):
    folders = [
        make_run(m, seed=s, dataset=d) for m in ("zero_shot", "coop") for s in (1, 2) for d in ("digits", "shapes")
    ]
    folders.append(make_run("coop+margin+moments", dataset="digits"))
    results = read_results(folders)
    samples = {run.name: read_samples(run) for run in results.runs}
    compared = {group: compare(results, group, samples, 100) for group in results.groups}
    mean = average(compared, results.rows())
    row = Row("coop", "", "none")
    for number in (H, Number("novel", "ece"), Number("base", "nll")):
        columns = [one.estimates[row, number].value for one in compared.values()]
        assert mean.estimates[row, number].value == pytest.approx(np.mean(columns))
        assert mean.estimates[row, number].low < mean.estimates[row, number].high
    assert not any(of.method == "coop+margin+moments" for of, _ in mean.estimates)


def test_estimates_are_means_over_runs_with_an_interval(study):
    results = read_results(study)
    (group,) = results.groups
    samples = {run.name: read_samples(run) for run in results.runs}
    compared = compare(results, group, samples, 300)
    row, number = Row("coop", "", "none"), Number("base", "accuracy")
    values = [run.values["none", number] for run in results.of(group, row)]
    found = compared.estimates[row, number]
    assert found.value == pytest.approx(np.mean(values))
    assert found.std == pytest.approx(np.std(values, ddof=1))
    assert found.low < found.value < found.high
    routed = [Row(method, "", "route") for method in ("coop", "coop+margin+moments")]
    accuracy = [compared.estimates[one, Number("novel", "accuracy")].value for one in routed]
    assert accuracy[0] == accuracy[1]
    zero_shot = Row("zero_shot", "", "none")
    assert compared.differences[routed[0], zero_shot, Number("novel", "ece")].identical


def test_correlation_is_pearsons_with_fishers_interval():
    generator = np.random.default_rng(0)
    x = generator.normal(size=12)
    y = x + generator.normal(size=12)
    found, reference = correlation(x, y), stats.pearsonr(x, y)
    assert found.r == pytest.approx(reference.statistic)
    assert found[1:3] == pytest.approx(tuple(reference.confidence_interval(0.95)), abs=1e-9)
    assert correlation(x[:4], y[:4]) is None
    assert correlation(np.ones(9), y[:9]) is None
