import pytest

from promptcal.calibrators import fit_for
from promptcal.errors import DataError
from promptcal.metrics import measure
from promptcal.report.results import H, Number, Row, read_results
from promptcal.report.samples import read_samples, scores_of
from promptcal.storage import write_json, write_jsonl


def test_rows_are_methods_with_their_calibrators_zero_shot_first(study):
    results = read_results(study)
    assert len(results.groups) == 1
    assert [(row.method, row.calibrator) for row in results.rows()] == [
        ("zero_shot", "none"),
        ("zero_shot", "temperature"),
        *[(method, c) for method in ("coop", "coop+margin+moments") for c in ("none", "temperature", "route", "mix")],
    ]
    assert {row.variant for row in results.rows()} == {""}
    assert all(len(results.of(results.groups[0], row)) == 3 for row in results.rows())


def test_h_is_the_harmonic_mean_of_a_runs_accuracies(study):
    for run in read_results(study).runs:
        base, novel = (run.values["none", Number(split, "accuracy")] for split in ("base", "novel"))
        assert run.values["none", H] == pytest.approx(2 / (1 / base + 1 / novel), abs=1e-12)


def test_rows_that_join_base_and_novel_are_no_split_and_h_is_theirs(study):
    results = read_results(study)
    assert results.splits(results.groups[0]) == ("base", "novel")
    assert not [metric for metric in results.metrics() if metric.endswith(("_worst", "_novel_minus_base", "_mean"))]
    for run in results.runs:
        (joined,) = [
            row["value"]
            for row in run.folder.metrics
            if (row["calibrator"], row["split"], row["metric"]) == ("none", "base+novel", "accuracy_harmonic_mean")
        ]
        assert run.values["none", H] == joined


def test_runs_without_rows_that_join_base_and_novel_are_reported_alike(make_run):
    folder = make_run()
    whole = read_results([folder]).runs[0]
    write_jsonl(folder.path / "metrics.jsonl", [row for row in folder.metrics if row["split"] != "base+novel"])
    older = read_results([folder]).runs[0]
    assert (older.values, older.counts, older.units) == (whole.values, whole.counts, whole.units)


def test_settings_that_differ_make_variants_and_seeds_do_not(make_run):
    folders = [make_run(seed=seed) for seed in (1, 2)]
    folders += [make_run(seed=seed, extra={"training": {"epochs": 200}}) for seed in (1, 2)]
    results = read_results(folders)
    plain = [row for row in results.rows() if row.calibrator == "none"]
    assert [row.name for row in plain] == ["CoOp (epochs=50)", "CoOp (epochs=200)"]
    assert [len(results.of(results.groups[0], row)) for row in plain] == [2, 2]


def test_a_seed_of_the_data_that_equals_a_runs_seed_makes_no_variant(make_run):
    results = read_results([make_run(seed=seed, extra={"dataset": {"reader": {"split_seed": 1}}}) for seed in (0, 1)])
    assert [group.dataset for group in results.groups] == ["digits"]
    assert {row.variant for row in results.rows()} == {""}


def test_data_read_in_another_way_are_groups_of_their_own(make_run):
    def read(severity):
        return {
            "dataset": {"reader": {"seed": 0, "severity": severity, "noise": {"level": 1}}, "title": "Drawn shapes"}
        }

    folders = [
        make_run(method, seed=seed, dataset="shapes", extra=read(severity))
        for seed, severity in ((1, 1), (2, 5))
        for method in ("zero_shot", "coop")
    ]
    results = read_results(folders)
    assert [group.dataset for group in results.groups] == ["shapes (severity=1)", "shapes (severity=5)"]
    assert results.title(results.groups[1]) == "Drawn shapes (severity=5), model mini, 16 shots"
    assert {row.variant for row in results.rows()} == {""}
    assert all(len(results.of(group, row)) == 1 for group in results.groups for row in results.rows(group))


def test_other_data_seeds_are_told_from_the_runs_own(make_run):
    folders = [make_run(seed=1, extra={"dataset": {"reader": {"seed": seed}}}) for seed in (3, 4)]
    names = [group.dataset for group in read_results(folders).groups]
    assert names == ["digits (dataset.reader.seed=3)", "digits (dataset.reader.seed=4)"]
    own = [make_run(seed=seed, extra={"dataset": {"reader": {"seed": seed}}}) for seed in (1, 2)]
    assert [group.dataset for group in read_results(own).groups] == ["digits"]


def test_other_texts_and_crops_of_one_data_set_are_variants(make_run):
    extras = [{"dataset": {"templates": ["a {}."], "augment": {"flip": flip}}} for flip in (0.0, 0.5)]
    extras.append({"dataset": {"templates": ["the {}."], "augment": {"flip": 0.5}}})
    results = read_results([make_run(seed=seed, extra=extra) for seed, extra in enumerate(extras)])
    assert [row.variant for row in results.rows() if row.calibrator == "none"] == [
        "flip=0.0, templates=['a {}.']",
        "flip=0.5, templates=['a {}.']",
        "flip=0.5, templates=['the {}.']",
    ]


def test_where_a_data_set_lies_and_what_its_card_says_of_it_make_no_variant(make_run):
    cards = [{"path": path, "licence": path, "source": path, "reference": path, "folder": path} for path in ("a", "b")]
    folders = [make_run(seed=seed, extra={"dataset": card}) for seed, card in enumerate(cards)]
    results = read_results(folders)
    assert {row.variant for row in results.rows()} == {""}
    assert len(results.groups) == 1
    longer = make_run(seed=2, extra={"dataset": cards[1], "training": {"epochs": 200}})
    assert {row.variant for row in read_results([*folders, longer]).rows()} == {"epochs=50", "epochs=200"}


def test_shots_and_data_sets_are_groups_of_their_own(make_run):
    results = read_results([make_run(), make_run(shots=4), make_run(dataset="shapes")])
    assert [results.title(group) for group in results.groups] == [
        "Digits, model mini, 16 shots",
        "Digits, model mini, 4 shots",
        "Shapes, model mini, 16 shots",
    ]


def test_own_folders_share_a_card_and_are_told_apart_by_their_paths(make_run):
    card = {"dataset": {"name": "folder", "title": "A folder of images", "sizes": None}}
    paths = [{"dataset": {**card["dataset"], "path": path}} for path in ("/my/birds", "/my/boats")]
    results = read_results([make_run(extra=path) for path in paths])
    assert [group.dataset for group in results.groups] == ["birds", "boats"]


def test_recipes_that_differ_are_named_by_their_choice_alone(make_run):
    extras = [
        {"choices": {"head": head}, "head": {"_target_": f"promptcal.heads.{head}", "width": width}}
        for head, width in (("none", 0), ("calattn", 32))
    ]
    results = read_results([make_run(extra=extra) for extra in extras])
    assert [row.variant for row in results.rows() if row.calibrator == "none"] == ["head=none", "head=calattn"]
    wider = {**extras[1], "head": {**extras[1]["head"], "width": 64}}
    results = read_results([make_run(extra=extra) for extra in [*extras, wider]])
    assert [row.variant for row in results.rows() if row.calibrator == "none"] == [
        "head=none, width=0",
        "head=calattn, width=32",
        "head=calattn, width=64",
    ]


def test_protocols_are_groups_of_their_own(make_run):
    extra = {"choices": {"protocol": "few_shot"}}
    results = read_results([make_run(), make_run(extra=extra)])
    assert [group.protocol for group in results.groups] == ["base_to_novel", "few_shot"]
    assert results.title(results.groups[1]) == "Digits, model mini, protocol few_shot, 16 shots"


def test_a_nan_and_a_torn_file_are_refused(make_run):
    folder = make_run()
    first, *rest = folder.metrics
    write_jsonl(folder.path / "metrics.jsonl", [first | {"value": float("nan")}, *rest])
    with pytest.raises(DataError, match="the accuracy of none on base is nan"):
        read_results([folder])
    write_jsonl(folder.path / "metrics.jsonl", [{key: first[key] for key in first if key != "metric"}, *rest])
    with pytest.raises(DataError, match=r"metrics.jsonl is not whole \('metric'\)"):
        read_results([folder])


def test_the_same_run_twice_counts_once(study):
    assert len(read_results([*study, *study]).runs) == len(study)


def test_other_weights_of_a_model_are_another_model(make_run):
    folders = [make_run(name=name) for name in ("11111111", "22222222")]
    for folder, digest in zip(folders, ("aaaaaaaa", "bbbbbbbb"), strict=True):
        write_json(folder.path / "run.json", folder.info | {"weights": digest})
    results = read_results(folders)
    assert [group.model for group in results.groups] == ["mini (weights aaaaaa)", "mini (weights bbbbbb)"]
    assert {row.variant for row in results.rows()} == {""}


def test_the_same_configuration_on_other_data_is_not_averaged(make_run):
    folders = [make_run(name="11111111"), make_run(name="22222222")]
    with pytest.raises(DataError, match=r"11111111 and .*22222222 are the same configuration on different data"):
        read_results(folders)


def test_no_runs_is_an_error():
    with pytest.raises(DataError, match="no finished runs"):
        read_results([])


def test_scores_from_stored_predictions_give_the_stored_numbers(study):
    for run in read_results(study).runs[::4]:
        for (calibrator, split), scores in read_samples(run).scores.items():
            found = {
                "accuracy": scores.correct.mean(),
                "nll": scores.nll.mean(),
                "signed_gap": (scores.confidence - scores.correct).mean(),
            }
            for metric, value in found.items():
                assert value == pytest.approx(run.values[calibrator, Number(split, metric)], abs=1e-12)


def test_scores_of_calibrated_probabilities_are_those_of_the_metrics(study):
    folder = study[0]
    given = fit_for("histogram", {"val": folder.predictions("val")}).transform(folder.predictions("base"))
    scores, measured = scores_of(given), {row.metric: row.value for row in measure(given)}
    assert given.probabilities is not None
    assert scores.nll.mean() == pytest.approx(measured["nll"], abs=1e-12)
    assert scores.correct.mean() == pytest.approx(measured["accuracy"], abs=1e-12)
    assert scores.confidence.mean() == pytest.approx(measured["confidence"], abs=1e-12)


def test_a_run_without_validation_images_is_scored_by_what_needs_none(make_run):
    folder = make_run(calibrators=("none", "route", "mix"), val=False)
    (run,) = read_results([folder]).runs
    samples = read_samples(run)
    assert samples.fitted == ()
    for (calibrator, split), scores in samples.scores.items():
        assert scores.correct.mean() == pytest.approx(run.values[calibrator, Number(split, "accuracy")], abs=1e-12)
    assert (samples.scores["route", "novel"].confidence != samples.scores["none", "novel"].confidence).any()


def test_a_run_whose_validation_predictions_are_gone_is_refused(make_run):
    folder = make_run()
    (folder.path / "predictions" / "val.safetensors").unlink()
    with pytest.raises(DataError, match="'temperature' is fitted on validation images"):
        read_samples(read_results([folder]).runs[0])


def test_names_of_rows():
    assert Row("coop+margin+moments", "", "temperature").name == "CoOp + margin + moments + TS"
    assert Row("coop", "lr=0.02", "mix").name == "CoOp (lr=0.02), half zero-shot"
    assert Row("my_method", "", "none").name == "my method"
