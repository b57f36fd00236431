"""Curves against the number of shots: of each data set, and of their average."""

from promptcal.report import write_report
from promptcal.report.estimates import compare
from promptcal.report.figures import over_shots
from promptcal.report.results import Number, read_results
from promptcal.report.samples import read_samples


def test_curves_of_each_data_set_and_of_those_with_every_number_of_shots(make_run, tmp_path):
    folders = [make_run("coop", dataset=name, shots=shots) for name in ("digits", "pets") for shots in (1, 4)]
    folders.append(make_run("coop", dataset="shapes", shots=4))
    page = write_report(folders, tmp_path / "out", title="Shots").files["page"].read_text()
    headings = ("digits, model mini", "pets, model mini", "average over 2 data sets, model mini")
    for heading in headings:
        assert page.count(f"Accuracy, ECE and NLL against shots: {heading}") >= 1
    assert "against shots: shapes" not in page


def test_the_curves_go_through_the_means_of_accuracy_ece_and_nll(make_run):
    results = read_results([make_run("coop", shots=shots) for shots in (1, 4)])
    samples = {run.name: read_samples(run) for run in results.runs}
    estimated = {group.shots: compare(results, group, samples, 20) for group in results.groups}
    (row,) = [row for row in results.rows() if row.calibrator == "none"]
    axes = over_shots(estimated, [row], ("base", "novel")).axes
    assert len(axes) == 6
    for ax, (metric, scale) in zip(axes[1::2], (("accuracy", 100), ("ece", 100), ("nll", 1)), strict=True):
        line = ax.lines[0]
        assert line.get_xdata().tolist() == [1, 4]
        expected = [estimated[shots].estimates[row, Number("novel", metric)].value * scale for shots in (1, 4)]
        assert line.get_ydata().tolist() == expected
