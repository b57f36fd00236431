import numpy as np
import pytest

from promptcal.data.cards import card_names
from promptcal.report.claims import published, published_tables, recipe
from promptcal.report.estimates import compare
from promptcal.report.results import Number, read_results
from promptcal.report.samples import read_samples


def tables_of(runs):
    results = read_results(runs)
    samples = {run.name: read_samples(run) for run in results.runs}
    compared = {group: compare(results, group, samples, 50) for group in results.groups}
    return results, compared, published_tables(results, compared)


def cells(table, label):
    return [cell.text for line in table.lines if line.label == label for cell in line.cells]


def test_every_claim_is_a_fraction_of_a_known_source_and_data_set():
    sources, claims = published()
    assert {claim.source for claim in claims} == set(sources)
    assert {name for claim in claims for name in claim.values} <= set(card_names())
    assert {claim.metric for claim in claims} == {"accuracy", "ece"}
    assert {claim.split for claim in claims} == {"base", "novel"}
    numbers = [value for claim in claims for value in claim.values.values()]
    assert len(numbers) > 2000
    assert 0 < min(numbers) < max(numbers) < 1
    keys = [(claim.source, claim.method, claim.calibrator, claim.split, claim.metric) for claim in claims]
    assert len(set(keys)) == len(keys)


def test_printed_averages_are_the_means_of_their_columns_but_for_the_known_ones():
    """Of the README's averages 19 are not the means of their columns; a slip in copying would make it more."""
    wrong = [
        claim
        for claim in published()[1]
        if claim.average is not None and len(claim.values) == 11
        if abs(np.mean(list(claim.values.values())) - claim.average) > 0.00015
    ]
    assert len(wrong) == 19
    assert ("maple", "none", "base", "accuracy") in [(c.method, c.calibrator, c.split, c.metric) for c in wrong]


@pytest.mark.parametrize(
    ("method", "calibrator", "split", "metric", "dataset", "value"),
    [
        ("coop", "none", "novel", "ece", "imagenet", 0.1069),
        ("coop+margin+moments", "none", "novel", "ece", "ucf101", 0.0475),
        ("maple", "dac", "novel", "ece", "eurosat", 0.0855),
        ("kgcoop+zs_norm", "none", "base", "accuracy", "caltech101", 0.9414),
        ("zero_shot", "none", "base", "accuracy", "dtd", 0.53),
    ],
)
def test_some_claims_are_as_printed(method, calibrator, split, metric, dataset, value):
    (claim,) = [
        claim
        for claim in published()[1]
        if claim.source == "tcpt_readme"
        and (claim.method, claim.calibrator, claim.split, claim.metric) == (method, calibrator, split, metric)
    ]
    assert claim.values[dataset] == pytest.approx(value)


def test_measured_and_claimed_stand_side_by_side_and_are_marked(make_run):
    runs = [
        make_run(method, dataset="dtd", calibrators=("none",))
        for method in ("zero_shot", "coop", "coop+margin+moments")
    ]
    results, compared, (readme, logs) = tables_of(runs)
    assert "TCPT, README" in readme.title
    assert "Claimed, not measured" in readme.caption
    assert "another model or number of shots and does not compare" in readme.caption
    assert [(column.span, column.heading) for column in readme.columns[:4]] == [
        ("base acc", "here"),
        ("base acc", "claimed"),
        ("base ECE@10", "here"),
        ("base ECE@10", "claimed"),
    ]
    (group,) = results.groups
    row = next(row for row in results.rows(group) if row.method == "coop" and row.calibrator == "none")
    shown = cells(readme, "CoOp")
    assert shown[1::2] == ["76.27", "12.17", "52.98", "20.82"]
    measured = [
        compared[group].estimates[row, Number(*key)].value for key in (("base", "accuracy"), ("novel", "ece@10"))
    ]
    assert [shown[0], shown[6]] == [f"{100 * value:.2f}" for value in measured]
    assert cells(readme, "zero-shot CLIP")[1::2] == ["53.00", "4.53", "60.60", "6.86"]
    assert cells(logs, "CoOp + margin + moments")[1::2] == ["80.44", "2.42", "48.07", "9.31"]
    assert cells(logs, "CoOp") == []
    assert not any(cell.best or cell.spread for table in (readme, logs) for line in table.lines for cell in line.cells)


def test_averages_are_over_the_data_sets_at_hand(make_run):
    runs = [make_run("coop", dataset=name, calibrators=("none",)) for name in ("dtd", "eurosat")]
    *_, tables = tables_of(runs)
    (mean,) = [table for table in tables if table.title.startswith("Average over 2 data sets")]
    assert cells(mean, "CoOp")[1] == f"{(76.27 + 90.24) / 2:.2f}"
    assert "here" in [column.heading for column in mean.columns]


def test_unknown_data_sets_and_other_recipes_have_no_claims(make_run):
    assert tables_of([make_run("coop", dataset="digits", calibrators=("none",))])[2] == []
    assert tables_of([make_run("coop", dataset="dtd (severity=5)", calibrators=("none",))])[2] == []
    assert recipe("coop_ep200") == recipe("coop_ep50") == "coop"
    assert recipe("maple_dac+margin") == "maple+margin"
    assert recipe("zero_shot_ensemble") == "zero_shot_ensemble"


def test_a_report_shows_claims_only_where_asked_and_in_files_of_their_own(make_run, tmp_path, capsys):
    from promptcal.cli import main

    make_run("coop", dataset="dtd", calibrators=("none",))
    make_run("coop", calibrators=("none",))
    runs = str(tmp_path / "runs")
    assert main(["report", f"{runs}/dtd", "--out", str(tmp_path / "plain")]) == 0
    assert "claimed" not in capsys.readouterr().out
    assert main(["report", f"{runs}/dtd", "--out", str(tmp_path / "beside"), "--published"]) == 0
    out = capsys.readouterr().out
    assert "beside what is claimed by TCPT, README" in out
    assert max(map(len, out.splitlines())) <= 120
    for name in ("index.html", "published.txt", "published.md", "published.tex"):
        assert "76.27" in (tmp_path / "beside" / name).read_text()
    for name in ("summary.csv", "table.md", "table.tex"):
        assert (tmp_path / "beside" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert "Dtd, model mini, 16 shots, beside what is claimed by" in (tmp_path / "beside/index.html").read_text()
    assert "76.27" not in (tmp_path / "plain/index.html").read_text()
    assert main(["report", f"{runs}/digits", "--out", str(tmp_path / "digits"), "--published"]) == 0
    assert "no published figures" in capsys.readouterr().out
