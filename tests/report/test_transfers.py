"""Reports of protocols whose splits are data sets: the mean of the others, a table a metric, and what is read."""

import dataclasses

import numpy as np
import pytest

from promptcal.report import write_report
from promptcal.report.estimates import compare
from promptcal.report.results import H, Number, read_results
from promptcal.report.samples import read_samples
from promptcal.report.tables import columns_by_metric, compared_columns
from promptcal.report.transfers import OTHERS, others_of, with_means
from promptcal.storage import load_predictions, save_predictions, write_jsonl

TARGETS = {"base": "digits", "novel": "pets"}


@pytest.fixture
def crossed(make_run):
    """Runs of two methods and two seeds, tested on the data set they were trained on and two others."""
    folders = []
    for method in ("zero_shot", "coop"):
        for seed in (1, 2):
            folder = make_run(method, seed=seed, extra={"choices": {"protocol": "cross_dataset"}})
            rows = [row | {"split": TARGETS[row["split"]]} for row in folder.metrics if row["split"] in TARGETS]
            flowers = [
                row | {"split": "flowers", "value": row["value"] and row["value"] / 2}
                for row in rows
                if row["split"] == "pets"
            ]
            write_jsonl(folder.path / "metrics.jsonl", rows + flowers)
            for split, target in (("base", "digits"), ("novel", "pets"), ("novel", "flowers")):
                stored = load_predictions(folder.path / "predictions" / f"{split}.safetensors")
                changed = dataclasses.replace(stored, split=target)
                save_predictions(folder.path / "predictions" / f"{target}.safetensors", changed)
            folders.append(folder)
    return folders


def test_the_mean_of_others_is_that_of_each_run_and_of_each_replicate(crossed):
    results = read_results(crossed)
    (group,) = results.groups
    assert results.splits(group) == ("digits", "pets", "flowers")
    assert results.others(group) == ("pets", "flowers")
    for run in results.runs:
        for metric in ("accuracy", "ece", "nll"):
            parts = [run.values["none", Number(split, metric)] for split in ("pets", "flowers")]
            assert run.values["none", Number(OTHERS, metric)] == pytest.approx(sum(parts) / 2)
        assert ("none", H) not in run.values
    compared = compare(results, group, {run.name: read_samples(run) for run in results.runs}, 50)
    row = results.rows(group)[0]
    found = {split: compared.estimates[row, Number(split, "ece")] for split in ("pets", "flowers", OTHERS)}
    assert np.allclose(found[OTHERS].replicates, (found["pets"].replicates + found["flowers"].replicates) / 2)
    assert [column.number for column in compared_columns(results.splits(group), compared)] == [
        Number(OTHERS, metric) for metric in ("accuracy", "ece", "nll")
    ]


def test_many_targets_have_a_table_a_metric(crossed, tmp_path):
    written = write_report(crossed, tmp_path / "out", title="Crossed")
    heads = [
        line for line in written.text.splitlines() if line.startswith("Digits, model mini, protocol cross_dataset")
    ]
    assert [line.rpartition(": ")[2] for line in heads] == ["accuracy", "ECE", "gap", "NLL"]
    assert "mean of others" in written.text
    assert "Lowest mean of others ECE: " in written.text
    assert max(map(len, written.text.splitlines())) <= 110


def test_only_data_sets_have_others_and_only_several_a_mean():
    assert others_of(["base", "novel"], "base_to_novel") == ()
    assert others_of(["imagenet", "dtd"], "domain_shift") == ("dtd",)
    values = {("none", Number("a", "ece")): 0.1, ("none", Number("b", "ece")): 0.3}
    assert with_means(values, ["a"]) == values
    assert with_means(values, ["a", "b"])["none", Number(OTHERS, "ece")] == pytest.approx(0.2)
    assert with_means(values, ["a", "c"]) == values


def test_base_novel_and_all_are_three_splits_with_h():
    tables = columns_by_metric(("base", "novel", "all"))
    assert [column.heading for column in tables[0]] == ["base", "novel", "all", OTHERS, "H"]
    assert {column.span for column in tables[1]} == {"ECE"}
