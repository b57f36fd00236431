"""What runs will cost: the mean of the finished runs that are most like them, and what they are unlike in."""

import pytest

from promptcal.config import compose
from promptcal.costs import estimate, measured
from promptcal.run import RunFolder
from promptcal.sweep import duration


def finish(place, name, seconds, *words):
    folder = RunFolder(place / "digits" / "coop" / name)
    folder.begin()
    folder.write_config(compose(words))
    folder.write_info(seconds=seconds)
    folder.finish()


@pytest.fixture
def place(tmp_path):
    finish(tmp_path, "a", 10.0, "method=coop", "seed=1")
    finish(tmp_path, "b", 20.0, "method=coop", "seed=2")
    finish(tmp_path, "c", 90.0, "method=kgcoop")
    RunFolder(tmp_path / "digits" / "coop" / "d").begin()
    return tmp_path


def test_the_nearest_finished_runs_count(place):
    known = measured({str(place)})
    same = estimate([compose(["method=coop", "seed=3"])], known)
    assert (same.runs, same.seconds, same.finished, same.given_up) == (1, 15.0, 2, ())
    other = estimate([compose(["method=coop", "dataset=shapes"])], known)
    assert (other.seconds, other.given_up) == (15.0, ("data set",))
    unknown = estimate([compose(["method=maple"])], known)
    assert (unknown.seconds, unknown.finished) == (40.0, 3)
    assert unknown.given_up == ("method", "epochs", "shots", "data set")
    several = estimate([compose(["method=coop", "seed=3"]), compose(["method=kgcoop", "seed=3"])], known)
    assert (several.seconds, several.finished) == (105.0, 3)
    assert several.sentence(2, duration) == (
        "about 2 min of work, 52 s with 2 at once (52.5 s a run, estimated from 3 finished ones)"
    )


def test_without_finished_runs_there_is_no_estimate(tmp_path):
    assert "no finished run" in estimate([compose()], measured({str(tmp_path)})).sentence(1, duration)


def test_durations():
    assert [duration(seconds) for seconds in (3.2, 600.0, 7200.0)] == ["3 s", "10 min", "2.0 h"]
