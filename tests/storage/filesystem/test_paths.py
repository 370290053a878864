"""Places: what the formats ask of paths is the same in an object store; URLs are told from paths, or refused."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from store_helpers import BUCKET, Faults, object_store

from distls.storage.dataset.chunks import read_arrays, write_arrays
from distls.storage.errors import FormatError, ParameterError, StorageError
from distls.storage.filesystem.append_log import Lines
from distls.storage.filesystem.atomic import (
    remove_tree,
    replace_directory,
    subfolders,
    text_file,
    write_bytes,
)
from distls.storage.filesystem.paths import Place, StorePath, place_of
from distls.storage.filesystem.safe_read import opened_ranges, read_array_file, read_bytes
from distls.storage.model.bundle import read_bundle, write_bundle
from distls.storage.temporary.row_state import RowState

# -- URLs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/a/b", StorePath("s3://bucket", "a/b")),
        ("S3://bucket//a/./b/", StorePath("s3://bucket", "a/b")),
        ("gs://bucket", StorePath("gs://bucket", "")),
        ("file:///a/b", Path("/a/b")),
        ("a/b", Path("a/b")),
        ("s3:/a", Path("s3:/a")),
        (Path("/a/b"), Path("/a/b")),
        (StorePath("az://box", "a"), StorePath("az://box", "a")),
    ],
)
def test_what_is_a_url(text, expected):
    assert place_of(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hdfs://a/b", "hdfs://...: expected a path, file:/// or s3://, gs://, az://, http://, https://"),
        (
            "s3://key:secret@b/c",
            "s3://...@...: no names or keys in URLs; give credentials in the environment",
        ),
        ("s3:///a", "s3:///a: expected s3://BUCKET/NAME, without '..', '?' and '#'"),
        ("s3://b/../a", "s3://b/../a: expected s3://BUCKET/NAME, without '..', '?' and '#'"),
        (
            "https://b/a?X-Amz-Signature=1",
            "https://b/a?...: expected https://BUCKET/NAME, without '..', '?' and '#'",
        ),
        ("s3://b/a?x=1", "s3://b/a?...: expected s3://BUCKET/NAME, without '..', '?' and '#'"),
        ("s3://b/a\nb", "'s3://b/a\\nb': no control characters in URLs, and no bytes that are not UTF-8"),
        ("s3://b/\udcff", "'s3://b/\\udcff': no control characters in URLs, and no bytes that are not UTF-8"),
        ("gs://b\x7f", "'gs://b\\x7f': no control characters in URLs, and no bytes that are not UTF-8"),
        (Path("s3://b/a"), "s3:/b/a: a pathlib.Path drops a slash of URLs; give it as a text"),
    ],
)
def test_urls_that_are_refused(text, message):
    with pytest.raises(ParameterError) as refusal:
        place_of(text)
    assert str(refusal.value) == message


def test_names_are_those_of_paths():
    place, path = StorePath("s3://b", "a/c.tar.gz"), Path("/b/a/c.tar.gz")
    assert str(place) == "s3://b/a/c.tar.gz"
    for one in (place, path):
        assert (one.name, one.suffix, one.parent.name, one.with_name("d").name) == (
            "c.tar.gz",
            ".gz",
            "a",
            "d",
        )
        assert one.with_suffix(".x").name == "c.tar.x"
        assert str(one.relative_to(one.parent.parent)) == "a/c.tar.gz"
        assert one.joinpath("x", "y") == one / "x" / "y"
    assert place.parts == ("s3://b", "a", "c.tar.gz")
    assert place.parent.parent.parent == StorePath("s3://b", "")
    assert pickle.loads(pickle.dumps(place)) == place == place.absolute() == place.resolve()
    assert len({place, StorePath("s3://b", "a/c.tar.gz")}) == 1


def test_no_file_of_this_machine_is_meant():
    with pytest.raises(TypeError, match="s3://b/a is in an object store and not a file of this machine"):
        os.stat(StorePath("s3://b", "a"))


def test_a_bucket_is_not_removed():
    with pytest.raises(ValueError, match="a whole bucket is not removed"):
        StorePath("s3://b", "").remove()


# -- the same for both -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def faults() -> Iterator[Faults]:
    with object_store() as faults:
        yield faults


@pytest.fixture(params=["disk", "store"])
def place(request, tmp_path) -> Place:
    if request.param == "disk":
        return tmp_path
    request.getfixturevalue("faults").heal()
    return place_of(f"{BUCKET}/{tmp_path.name}")


def write(path: Place, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)


def test_files_and_folders(place):
    write(place / "a" / "x.bin", b"123")
    write(place / "a" / "b" / "y", b"")
    write(place / "ab", b"4")
    assert [(place / n).exists() for n in ("a", "ab", "a/x.bin", "b", "a/x")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert [(place / n).is_dir() for n in ("a", "ab", "a/b", "b", "a/x.bin")] == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert [(place / n).is_file() for n in ("a", "ab", "a/b/y", "b")] == [False, True, True, False]
    assert sorted(each.name for each in place.iterdir()) == ["a", "ab"]
    assert subfolders(place) == [place / "a"]
    assert (place / "a" / "x.bin").stat().st_size == 3
    remove_tree(place / "a")
    remove_tree(place / "nothing")
    assert [each.name for each in place.iterdir()] == ["ab"]
    (place / "ab").unlink()
    (place / "ab").unlink(missing_ok=True)
    for act in (
        (place / "ab").unlink,
        (place / "ab").stat,
        (place / "ab").read_bytes,
        (place / "ab").read_text,
    ):
        with pytest.raises(FileNotFoundError, match="ab"):
            act()


@pytest.mark.parametrize("size", [0, 1, 1000, 2**20 + 1, 40 * 2**20])
def test_bytes_come_back(place, size):
    content = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    write_bytes(place / "x", content[: size // 3].data, b"", content[size // 3 :].data)
    read = read_array_file(place / "x")
    assert np.array_equal(read, content)
    assert read.flags.writeable
    assert read_bytes(place / "x") == (place / "x").read_bytes() == content.tobytes()
    with opened_ranges(place / "x", place) as fill:
        for start, length in ((0, min(size, 10)), (size // 2, size), (size, 5)):
            into = bytearray(length)
            got = fill(start, memoryview(into))
            assert bytes(into[:got]) == content.tobytes()[start : start + length]


def test_what_is_too_large_is_not_read(place):
    write_bytes(place / "x", bytes(100))
    with pytest.raises(FormatError, match="100 bytes, more than the 99"):
        read_bytes(place / "x", limit=99)


def test_a_text_is_whole_or_absent(place):
    with text_file(place / "x.csv") as file:
        file.write("ä,b\r\n")
        assert not (place / "x.csv").exists()
    assert (place / "x.csv").read_bytes() == "ä,b\r\n".encode()
    with contextlib.suppress(KeyError), text_file(place / "y.csv") as file:
        file.write("1\n" * 20_000_000)
        raise KeyError
    assert [each.name for each in place.iterdir()] == ["x.csv"]


def test_lines(place):
    lines = Lines(place / "events.jsonl")
    assert lines.read() == []
    for number in range(50):
        lines.append(f"line {number}")
    lines.flush()
    assert Lines(place / "events.jsonl").read() == [f"line {number}" for number in range(50)]
    again = Lines(place / "events.jsonl")
    again.replace(again.read()[:2])
    again.append("new")
    assert again.read() == ["line 0", "line 1", "new"]
    again.flush()
    assert (place / "events.jsonl").read_text() == "line 0\nline 1\nnew\n"


def test_groups_are_replaced(place):
    arrays = {"a": np.arange(5), "b": np.zeros((2, 0), np.float32)}
    write_arrays(place / "old", {"c": np.ones(3)})
    write_arrays(place / "new", arrays)
    replace_directory(place / "new", place / "old")
    found = read_arrays(place / "old", place)
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())
    remove_tree(place / "new")
    assert [each.name for each in place.iterdir()] == ["old"]


def test_bundles_are_replaced(place):
    for number in range(3):
        write_bundle(place / "b", "model", {"n": number}, {"a": np.full(4, number)})
    attributes, arrays = read_bundle(place / "b", "model")
    assert (attributes, arrays["a"].tolist()) == ({"n": 2}, [2, 2, 2, 2])


def test_row_state(place):
    state = RowState(str(place / "state"))
    for version in range(4):
        state.write(3, version, np.full((2, 2), version, np.float32))
    assert state.read(3, 3).tolist() == [[3, 3], [3, 3]]
    assert [state.holds(3, version) for version in range(5)] == [False, False, True, True, False]


# -- what is only so in a store --------------------------------------------------------------------------


@pytest.fixture
def store(faults, tmp_path) -> StorePath:
    faults.heal()
    place = place_of(f"{BUCKET}/{tmp_path.name}")
    assert isinstance(place, StorePath)
    return place


def test_a_bundle_is_the_old_one_until_the_last_object(store, monkeypatch):
    write_bundle(store / "b", "checkpoint", {"n": 1}, {"a": np.arange(3)})

    def stop(place, *parts):
        if place.name == "bundle.json":
            raise KeyboardInterrupt
        return write_parts(place, *parts)

    write_parts = StorePath.write_parts
    with monkeypatch.context() as patch:
        patch.setattr(StorePath, "write_parts", stop)
        with pytest.raises(KeyboardInterrupt):
            write_bundle(store / "b", "checkpoint", {"n": 2}, {"a": np.arange(9)})
    assert read_bundle(store / "b", "checkpoint")[0] == {"n": 1}
    write_bundle(store / "b", "checkpoint", {"n": 3}, {"a": np.arange(9)})
    # what was half-written is gone too
    assert len(subfolders(store / "b")) == 1


def test_a_bundle_of_a_store_can_be_copied_to_a_disk(store, tmp_path):
    write_bundle(store / "b", "model", {"n": 1}, {"a": np.arange(3)})
    for place in (store / "b").objects():
        copy = tmp_path / place.relative_to(store)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(place.read_bytes())
    assert read_bundle(tmp_path / "b", "model")[1]["a"].tolist() == [0, 1, 2]


def test_errors_of_the_server_are_tried_again(store, faults):
    faults.error_every = 2
    for number in range(5):
        write_bytes(store / str(number), bytes([number]))
        assert (store / str(number)).read_bytes() == bytes([number])
    assert sorted(each.name for each in store.iterdir()) == list("01234")
    assert faults.seen["errors"] >= 5


def test_answers_that_are_cut_off_are_read_again(store, faults):
    content = np.random.default_rng(0).integers(0, 256, 3 * 2**20, dtype=np.uint8)
    write_bytes(store / "x", content.data)
    faults.cut_reads_every = 2
    for _ in range(4):
        assert np.array_equal(read_array_file(store / "x"), content)
        assert (store / "x").read_bytes() == content.tobytes()
    assert faults.seen["cut reads"] >= 4


def test_half_an_upload_is_not_an_object(store, faults, monkeypatch):
    faults.cut_writes_every = 1
    monkeypatch.setenv("DISTLS_STORE_RETRY_SECONDS", "0.2")
    from store_helpers import forget_clients

    forget_clients()
    with pytest.raises(StorageError) as failed:
        write_bytes(store / "x", bytes(2**20))
    assert str(failed.value).startswith(f"{store}/x: the object store fails (")
    assert faults.seen["cut writes"] >= 1
    faults.heal()
    assert not (store / "x").exists()
    monkeypatch.undo()
    forget_clients()


def test_uploads_that_are_cut_off_are_sent_again(store, faults):
    content = np.random.default_rng(0).integers(0, 256, 2**20, dtype=np.uint8)
    faults.cut_writes_every = 2
    for number in range(4):
        write_bytes(store / str(number), content.data)
    assert faults.seen["cut writes"] >= 2
    assert all(np.array_equal(read_array_file(store / str(number)), content) for number in range(4))
