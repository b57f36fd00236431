import csv
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from promptcal import cli
from promptcal.report import write_report
from promptcal.report.page import Section, to_html
from promptcal.report.results import H, Number, read_results
from promptcal.report.tables import Cell, Column, Line, Table

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.fixture(scope="module")
def written(study, tmp_path_factory):
    return write_report(study, tmp_path_factory.mktemp("out"), title="Digits & <more>", unfinished=2)


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.attributes, self.words = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.words += data


def test_the_page_is_whole_and_needs_nothing_else(written):
    text = written.files["page"].read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert not {"script", "link", "img", "iframe"} & set(page.seen)
    assert not re.search(r"(src|href)=\"(?!#)", text.replace("xlink:", ""))
    assert "url(http" not in text
    assert "@import" not in text
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    links = [value[1:] for tag, name, value in page.attributes if name.endswith("href")]
    assert set(links) <= set(ids)
    assert page.seen.count("table") == page.seen.count("caption") == page.seen.count("thead")
    assert "Digits & <more>" in page.words
    for heading in ("What was run", "Conventions", "Digits, model mini, 16 shots", "All metrics on novel"):
        assert heading in page.words
    assert "2 more are not finished" in page.words


def test_every_run_is_listed_with_its_cost(written, study):
    words = Page(written.files["page"].read_text(encoding="utf-8")).words
    for folder in study:
        assert folder.path.name in words
    for said in ("abc123", "11.0", "12.5", "2,048", "T = ", "torch 2.9"):
        assert said in words


def test_colours_follow_the_page(written):
    text = written.files["page"].read_text(encoding="utf-8")
    figures = text[text.index("<svg") :]
    assert not re.search(r"(fill|stroke): #", figures)
    used = set(re.findall(r"var\(--([\w-]+)\)", text))
    style = text[text.index("<style>") : text.index("</style>")]
    assert used <= set(re.findall(r"--([\w-]+):", style))


def test_the_csv_holds_the_means_of_the_runs_as_fractions(written, study):
    rows = list(csv.DictReader(written.files["csv"].open(encoding="utf-8")))
    runs = read_results(study).runs
    found = {
        (row["method"], row["calibrator"], row["split"], row["metric"]): float(row["mean"])
        for row in rows
        if row["variant"] == ""
    }
    for run in runs:
        for calibrator, number in run.values:
            values = [other.values[calibrator, number] for other in runs if other.method == run.method]
            assert found[run.method, calibrator, *number] == pytest.approx(np.mean(values), abs=1e-12)
    assert ("coop", "none", *H) in found
    assert {"ece", "ece@10", "ece@20", "aurc", "nll", "brier"} <= {row["metric"] for row in rows}


def test_the_text_has_the_table_and_a_reading(written):
    assert written.text.startswith("Digits, model mini, 16 shots\nMeans of 3 runs a line")
    assert "- Lowest novel ECE: " in written.text
    assert "A perfectly calibrated model with the same confidences" in written.text
    assert written.text.endswith("2 more are not finished and not in here.")
    assert max(map(len, written.text.splitlines())) <= 110
    assert "−" not in written.text  # a terminal may not know the sign


def test_a_report_is_the_same_twice(written, study, tmp_path):
    again = write_report(study, tmp_path, title="Digits & <more>", unfinished=2)
    assert again.text == written.text
    for label, path in written.files.items():
        assert again.files[label].read_bytes() == path.read_bytes(), label


def test_several_data_sets_shots_and_class_splits(make_run, tmp_path):
    folders = [
        make_run(m, dataset=d, split_seed=s)
        for m in ("zero_shot", "coop")
        for d in ("digits", "shapes")
        for s in (0, 1)
    ]
    folders += [make_run("coop", shots=shots, split_seed=0) for shots in (1, 4)]
    made = write_report(folders, tmp_path / "out", title="Study")
    assert "Average over 2 data sets, model mini, 16 shots" in made.text
    assert sorted(path.name for path in made.files["reliability diagrams"].iterdir()) == [
        "digits-mini-base_to_novel-1.png",
        "digits-mini-base_to_novel-16.png",
        "digits-mini-base_to_novel-4.png",
        "shapes-mini-base_to_novel-16.png",
    ]
    words = Page(made.files["page"].read_text(encoding="utf-8")).words
    assert "Accuracy, ECE and NLL against shots: digits, model mini" in words
    assert "seed 1, class split 1" in words


def test_the_command_reports_finished_runs_and_counts_the_others(make_run, tmp_path, capsys):
    folder = make_run("coop")
    (folder.path.parent / "abcdef01.partial").mkdir()
    out = tmp_path / "out"
    assert cli.main(["report", str(folder.path.parent.parent), "--out", str(out), "--title", "Mine"]) == 0
    said = capsys.readouterr().out
    assert "1 more is not finished" in said
    assert f"page: {out / 'index.html'}" in said
    assert "<h1>Mine</h1>" in (out / "index.html").read_text(encoding="utf-8")


def test_the_command_says_what_is_wrong_in_one_sentence(tmp_path, capsys):
    assert cli.main(["report", str(tmp_path / "nowhere")]) == 2
    assert cli.main(["report", str(tmp_path)]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 2
    assert "there is no folder" in errors[0]
    assert "no finished run" in errors[1]


@pytest.mark.filterwarnings("ignore::promptcal.calibrators.CalibrationWarning")
def test_rescoring_applies_other_calibrators_and_leaves_the_runs_alone(make_run, tmp_path, capsys):
    folder = make_run("coop", calibrators=("none",))
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    arguments = ["rescore", str(folder.path), "--calibrators", "none,temperature", "--out", str(tmp_path / "out")]
    assert cli.main(arguments) == 0
    assert "  + TS" in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "out" / "summary.csv").open(encoding="utf-8")))
    found = {(row["calibrator"], row["split"], row["metric"]): float(row["mean"]) for row in rows}
    reference = read_results([make_run("coop", name="ffffffff")]).runs[0]
    for (calibrator, number), value in reference.values.items():
        if calibrator in ("none", "temperature"):
            assert found[calibrator, *number] == pytest.approx(value, abs=1e-12)
    assert before == {path: path.read_bytes() for path in before}
    assert cli.main([*arguments[:3], "tempature"]) == 2
    assert "Did you mean 'temperature" in capsys.readouterr().err


def test_a_run_without_predictions_is_named(make_run, tmp_path):
    folder = make_run("coop")
    (folder.path / "predictions" / "novel.safetensors").unlink()
    with pytest.raises(ValueError, match=r"coop.* has no predictions/novel.safetensors"):
        write_report([folder], tmp_path, title="x")


def picture_of(page, tmp_path, width, *, dark=False):
    """What a headless browser shows of a page, as grey levels."""
    picture = tmp_path / "page.png"
    flags = ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "hide-scrollbars"]
    flags += ["disable-background-networking", "disable-component-update", "disable-sync"]
    flags += [f"user-data-dir={tmp_path / 'profile'}", f"window-size={width},2400", f"screenshot={picture}"]
    flags += ["blink-settings=preferredColorScheme=0"] if dark else []
    command = [CHROMIUM, *(f"--{flag}" for flag in flags), page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return np.asarray(Image.open(picture).convert("L"), dtype=np.int64)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium or chrome here to look at the page with")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (520, False)])
def test_a_browser_shows_the_page_in_light_and_dark_without_overflow(written, tmp_path, width, dark):
    pixels = picture_of(written.files["page"], tmp_path, width, dark=dark)
    ground = pixels[5, 5]
    assert (ground < 40) if dark else (ground > 240)
    assert (pixels[:, -12:] == ground).all()  # nothing reaches over the right margin
    assert (np.abs(pixels - ground) > 100).mean() > 0.02  # and there is something to see


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium or chrome here to look at the page with")
def test_many_sections_and_wide_tables_stay_on_the_page(tmp_path):
    columns = tuple(Column(Number("base", str(k)), "", f"a long heading {k}") for k in range(20))
    wide = Table("wide", "a caption " * 30, columns, (Line("row", 0, (Cell("1.0"),) * 20),))
    sections = [Section(f"A data set with a long name {k}", tables=(wide,)) for k in range(9)]
    page = tmp_path / "page.html"
    page.write_text(to_html("Many", "lead", sections, "foot"), encoding="utf-8")
    pixels = picture_of(page, tmp_path, 700)
    assert (pixels[:, -12:] == pixels[5, 5]).all()
