"""Downloads from a server of our own: laid out, resumed, compared with their checksums."""

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from promptcal.data.cards import Archive, Card, card_named, card_names
from promptcal.data.prepare import fetch
from promptcal.errors import DataError


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@dataclass
class Server:
    """What is served, what was asked for, and after how many bytes the next connection breaks off."""

    files: dict[str, bytes]
    url: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    breaks_after: int | None = None
    ranges: bool = True


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server({})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, wanted = self.path.lstrip("/"), self.headers.get("Range")
            state.asked.append((name, wanted))
            content = state.files.get(name)
            if content is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and state.ranges else 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            stop = len(content) if state.breaks_after is None else start + state.breaks_after
            state.breaks_after = None
            self.wfile.write(content[start:stop])

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield state
    http.shutdown()
    http.server_close()


def card(server: Server, name: str, content: bytes, holds: dict[str, str], md5: str | None = "right") -> Card:
    server.files[name] = content
    known = hashlib.md5(content).hexdigest() if md5 == "right" else md5
    archive = Archive(f"{server.url}/{name}", holds, known)
    return Card("toy", "Toy", {"_target_": "x"}, ("{}",), folder="toy", archives=(archive,))


def get(card: Card, folder) -> list[str]:
    said: list[str] = []
    for archive in card.archives:
        fetch(archive, folder, say=said.append, bar=lambda blocks, label, total: blocks)
    return said


FILES = {"toy-1.0/data/images/a.jpg": b"a" * 5000, "toy-1.0/data/names.txt": b"names", "toy-1.0/README": b"read me"}
HOLDS = {"toy-1.0/data/images": "images", "toy-1.0/data/names.txt": "lists/names.txt"}


@pytest.mark.parametrize(("pack", "name"), [(tar, "toy.tar.gz"), (zipped, "toy.zip")])
def test_what_an_archive_holds_is_laid_out_and_the_archive_removed(server, tmp_path, pack, name):
    wanted = card(server, name, pack(FILES), HOLDS)
    get(wanted, tmp_path / "toy")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()) == [
        "toy/images/a.jpg",
        "toy/lists/names.txt",
    ]
    assert (tmp_path / "toy/images/a.jpg").read_bytes() == b"a" * 5000
    assert get(wanted, tmp_path / "toy") == ["images, lists/names.txt: there already"]
    assert len(server.asked) == 1


def test_archives_in_archives_and_files_that_are_none(server, tmp_path):
    inner = tar({"classes/cat/1.jpg": b"cat"})
    outer = zipped({"set/classes.tar.gz": inner, "set/other.tar": b""})
    get(card(server, "set.zip", outer, {"set/classes.tar.gz/classes": "classes"}), tmp_path / "toy")
    get(card(server, "labels.mat", b"labels", {"labels.mat": "labels.mat"}), tmp_path / "toy")
    assert (tmp_path / "toy/classes/cat/1.jpg").read_bytes() == b"cat"
    assert (tmp_path / "toy/labels.mat").read_bytes() == b"labels"
    assert sorted(path.name for path in (tmp_path / "toy").iterdir()) == ["classes", "labels.mat"]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_that_broke_off_goes_on(server, tmp_path, ranges):
    content = zipped({"images/a.jpg": bytes(range(256)) * 40})
    wanted = card(server, "toy.zip", content, {"images": "images"})
    server.breaks_after = 4000
    with pytest.raises(DataError, match=r"toy\.zip cannot be downloaded \(.*goes on from what has come") as caught:
        get(wanted, tmp_path)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "toy.zip.part").read_bytes() == content[:4000]
    server.ranges = ranges
    get(wanted, tmp_path)
    assert (tmp_path / "images/a.jpg").read_bytes() == bytes(range(256)) * 40
    assert server.asked == [("toy.zip", None), ("toy.zip", "bytes=4000-")]


def test_a_whole_part_is_not_downloaded_again(server, tmp_path):
    content = zipped({"images/a.jpg": b"a"})
    wanted = card(server, "toy.zip", content, {"images": "images"})
    (tmp_path / "toy.zip.part").write_bytes(content)
    get(wanted, tmp_path)
    assert (tmp_path / "images/a.jpg").read_bytes() == b"a"


def test_another_checksum_is_refused_and_the_file_removed(server, tmp_path):
    wanted = card(server, "toy.zip", zipped({"images/a.jpg": b"a"}), {"images": "images"}, md5="0" * 32)
    with pytest.raises(DataError, match=r"toy\.zip has the MD5 checksum [0-9a-f]{32} instead of 0{32}"):
        get(wanted, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_archive_that_somebody_put_there_is_compared_and_used(server, tmp_path):
    content = zipped({"images/a.jpg": b"a"})
    wanted = card(server, "toy.zip", content, {"images": "images"})
    (tmp_path / "toy.zip").write_bytes(b"another")
    with pytest.raises(DataError, match="as a broken download has"):
        get(wanted, tmp_path)
    assert (tmp_path / "toy.zip").read_bytes() == b"another"
    (tmp_path / "toy.zip").write_bytes(content)
    get(wanted, tmp_path)
    assert (tmp_path / "images/a.jpg").read_bytes() == b"a"
    assert server.asked == []


def test_no_server_is_one_sentence(server, tmp_path):
    archive = Archive("http://127.0.0.1:9/toy.zip", {"images": "images"})
    with pytest.raises(DataError, match=r"toy\.zip cannot be downloaded \(.*refused\).* by hand\.$") as caught:
        fetch(archive, tmp_path, say=lambda line: None, bar=lambda blocks, label, total: blocks)
    assert "\n" not in str(caught.value)


def test_a_file_without_a_published_checksum_is_said_with_its_own(server, tmp_path):
    content = zipped({"images/a.jpg": b"a"})
    said = get(card(server, "toy.zip", content, {"images": "images"}, md5=None), tmp_path)
    assert any(hashlib.sha256(content).hexdigest() in line for line in said)


def test_broken_and_other_archives_are_one_sentence_and_leave_nothing_half_done(server, tmp_path):
    with pytest.raises(DataError, match=r"toy\.zip cannot be unpacked \(.*remove it and try again"):
        get(card(server, "toy.zip", b"no zip", {"images": "images"}), tmp_path)
    with pytest.raises(DataError, match=r"other\.zip does not hold 'pictures'"):
        get(card(server, "other.zip", zipped({"images/a.jpg": b"a"}), {"pictures": "images"}), tmp_path)
    gone = card(server, "gone.zip", b"", {"images": "images"})
    del server.files["gone.zip"]
    with pytest.raises(DataError, match=r"gone\.zip cannot be downloaded \(Not Found\)"):
        get(gone, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.zip", "toy.zip"]


def test_members_outside_the_folder_are_refused(server, tmp_path):
    with pytest.raises(DataError, match="cannot be unpacked"):
        get(card(server, "toy.tar.gz", tar({"../../evil.txt": b"x"}), {"images": "images"}), tmp_path / "a/b/c")
    assert not list(tmp_path.rglob("evil.txt"))


def test_addresses_and_checksums_are_those_of_torchvision():
    import inspect

    from torchvision import datasets

    source = "".join(inspect.getsource(getattr(datasets, name)) for name in datasets.__all__)
    sums = [archive.md5 for name in card_names() for archive in card_named(name).archives if archive.md5]
    assert len(sums) == 9
    assert all(known in source for known in sums)


def test_every_data_set_on_disk_can_be_fetched_or_comes_with_steps():
    for name in card_names():
        one = card_named(name)
        if one.folder not in (None, "."):
            assert one.archives or one.steps
            assert "split" not in one.reader or any(one.reader["split"] in step for step in one.steps)


def test_a_folder_that_cannot_be_made_is_named(server, tmp_path):
    (tmp_path / "file").write_text("a file")
    wanted = card(server, "toy.zip", zipped({"images/a.jpg": b"a"}), {"images": "images"})
    with pytest.raises(DataError, match=r"the folder .*/file/toy cannot be written"):
        get(wanted, tmp_path / "file/toy")
