"""Locks: one holder at a time, free when the holder dies, and no trace afterwards."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from promptcal.locks import locked

HOLD = "import sys, time; from pathlib import Path; from promptcal.locks import locked\n" + (
    "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
)


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "l")], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_lock_is_held_once_and_leaves_nothing(tmp_path):
    path = tmp_path / "new" / "l"
    with locked(path) as first:
        assert first
        with locked(path, wait=False) as second:
            assert not second
        assert path.exists()
    assert not path.exists()
    with locked(path, wait=False) as third:
        assert third


def test_a_lock_is_released_when_the_block_breaks(tmp_path):
    with pytest.raises(RuntimeError), locked(tmp_path / "l"):
        raise RuntimeError
    with locked(tmp_path / "l", wait=False) as held:
        assert held


def test_a_lock_of_another_process_is_respected_and_ends_with_it(tmp_path, holder):
    with locked(tmp_path / "l", wait=False) as held:
        assert not held
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "l").exists()
    with locked(tmp_path / "l", wait=False) as held:
        assert held


def test_many_that_wait_come_in_one_after_the_other(tmp_path):
    inside, most, rounds = 0, 0, 0
    guard = threading.Lock()

    def enter():
        nonlocal inside, most, rounds
        for _ in range(20):
            with locked(tmp_path / "l"):
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1
                    rounds += 1

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, rounds) == (1, 160)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"), locked(tmp_path / "file" / "l"):
        pass
