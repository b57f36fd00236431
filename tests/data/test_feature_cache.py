import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import promptcal
from promptcal.data.feature_cache import CacheSize, FeatureCache, space_of
from promptcal.errors import ConfigError, DataError
from promptcal.storage import load_tensors

SPACE = space_of({"weights": "w"})
ROOT = Path(promptcal.__file__).parents[1]


def make(n: int, seed: int = 0, width: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 32), dtype=np.uint8), rng.standard_normal((n, width)).astype(np.float32)


def run(code: str, *arguments: str) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=environment, stderr=subprocess.PIPE, text=True
    )


def test_what_is_stored_is_found_in_any_order(tmp_path):
    cache = FeatureCache(tmp_path / "cache")
    digests, features = make(9)
    cache.store(SPACE, digests[:4], features[:4], {})
    cache.store(SPACE, digests[4:8], features[4:8], {})
    order = np.array([7, 0, 8, 3, 5, 0])
    found, rows = cache.lookup(SPACE, digests[order])
    assert found.tolist() == [True, True, False, True, True, True]
    assert np.array_equal(rows, features[order[found]])


def test_digests_that_differ_in_zeros_alone_stay_apart(tmp_path):
    digests = np.zeros((3, 32), dtype=np.uint8)
    digests[1, 0], digests[2, 31] = 1, 1
    _, features = make(3)
    cache = FeatureCache(tmp_path)
    cache.store(SPACE, digests, features, {})
    found, rows = cache.lookup(SPACE, digests[::-1])
    assert found.all()
    assert np.array_equal(rows, features[::-1])


def test_spaces_do_not_mix(tmp_path):
    cache = FeatureCache(tmp_path)
    digests, features = make(2)
    cache.store(SPACE, digests, features, {})
    found, rows = cache.lookup(space_of({"weights": "other"}), digests)
    assert not found.any()
    assert len(rows) == 0


def test_a_shard_says_what_it_holds(tmp_path):
    digests, features = make(2)
    FeatureCache(tmp_path).store(SPACE, digests, features, {"weights": "w", "view": 3})
    (shard,) = tmp_path.iterdir()
    arrays, about = load_tensors(shard)
    assert about == {"weights": "w", "view": 3}
    assert np.array_equal(arrays["keys"], digests)
    assert shard.name.startswith(SPACE)


def test_look_and_clear(tmp_path):
    cache = FeatureCache(tmp_path)
    assert cache.size() == CacheSize(0, 0, 0)
    (tmp_path / "notes.txt").write_text("mine")
    for seed in (0, 1):
        cache.store(SPACE, *make(5, seed), {})
    size = sum(shard.stat().st_size for shard in tmp_path.glob("*.safetensors"))
    assert cache.size() == cache.clear() == CacheSize(2, 10, size)
    assert cache.size() == CacheSize(0, 0, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_least_recently_used_shards_go_first_and_the_newest_stays(tmp_path):
    cache = FeatureCache(tmp_path, max_bytes=10**9)
    shards = []
    for seed in range(3):
        cache.store(SPACE, *make(50, seed), {})
        (new,) = set(tmp_path.iterdir()) - set(shards)
        shards.append(new)
        os.utime(new, (1000 + seed, 1000 + seed))
    cache.lookup(SPACE, make(50, 0)[0])  # the oldest shard is now the one used last
    size = shards[0].stat().st_size
    FeatureCache(tmp_path, max_bytes=3 * size).store(SPACE, *make(50, 3), {})
    left = set(tmp_path.iterdir())
    assert len(left) == 3
    assert shards[0] in left
    assert shards[1] not in left
    FeatureCache(tmp_path, max_bytes=1).store(SPACE, *make(50, 4), {})
    assert FeatureCache(tmp_path).lookup(SPACE, make(50, 4)[0])[0].all()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_broken_shard_counts_as_absent_and_is_removed(tmp_path, caplog):
    cache = FeatureCache(tmp_path)
    digests, features = make(3)
    cache.store(SPACE, digests, features, {})
    (shard,) = tmp_path.iterdir()
    shard.write_bytes(shard.read_bytes()[:-7])
    assert not cache.lookup(SPACE, digests)[0].any()
    assert "broken" in caplog.text
    assert not shard.exists()


def test_a_killed_write_leaves_nothing_half_written(tmp_path):
    code = """
import os, sys, pathlib
from promptcal.data.feature_cache import FeatureCache
import numpy as np
pathlib.Path.replace = lambda self, target: os._exit(9)
FeatureCache(pathlib.Path(sys.argv[1])).store("s" * 32, np.ones((2, 32), np.uint8), np.ones((2, 4), np.float32), {})
"""
    process = run(code, str(tmp_path))
    assert process.wait() == 9, process.stderr.read()
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".tmp")
    cache = FeatureCache(tmp_path)
    assert cache.size() == CacheSize(0, 0, 0)
    assert not cache.lookup("s" * 32, np.ones((2, 32), np.uint8))[0].any()
    cache.store(SPACE, *make(1), {})
    assert left.exists()  # it might be the work of a living process
    os.utime(left, (time.time() - 7200,) * 2)
    cache.store(SPACE, *make(1), {})
    assert not left.exists()


def test_two_processes_fill_it_at_once(tmp_path):
    code = """
import sys, time, pathlib
import numpy as np
from promptcal.data.feature_cache import FeatureCache
folder, start = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
cache = FeatureCache(folder, max_bytes=40_000)
(start / sys.argv[3]).touch()
while len(list(start.iterdir())) < 2:
    time.sleep(0.01)
for part in range(40):
    rng = np.random.default_rng(part)
    digests = rng.integers(0, 256, (20, 32), dtype=np.uint8)
    features = rng.standard_normal((20, 16)).astype(np.float32)
    found, rows = cache.lookup("s" * 32, digests)
    assert np.array_equal(rows, features[found]) or not found.any()
    if not found.all():
        cache.store("s" * 32, digests[~found], features[~found], {})
"""
    (tmp_path / "start").mkdir()
    processes = [run(code, str(tmp_path / "cache"), str(tmp_path / "start"), name) for name in "ab"]
    for process in processes:
        assert process.wait() == 0, process.stderr.read()
    cache = FeatureCache(tmp_path / "cache", max_bytes=40_000)
    newest = np.random.default_rng(39).integers(0, 256, (20, 32), dtype=np.uint8)
    assert cache.lookup("s" * 32, newest)[0].all()
    assert 0 < cache.size().n_bytes <= 40_000
    assert all(path.suffix == ".safetensors" for path in cache.folder.iterdir())


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"feature cache .*file.* cannot be written"):
        FeatureCache(tmp_path / "file").store(SPACE, *make(1), {})


def test_a_cache_of_no_bytes_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="0 bytes"):
        FeatureCache(tmp_path, 0)
