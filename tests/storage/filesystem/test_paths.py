"""Places: what the formats ask of paths is the same in an object store; URLs are told from paths, or refused."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from helpers import raised, refuses
from store_helpers import BUCKET, object_store

from distls.storage.errors import ParameterError, StorageError
from distls.storage.filesystem.atomic import subfolders, write_bytes
from distls.storage.filesystem.object_store import client
from distls.storage.filesystem.paths import StorePath, place_of
from distls.storage.filesystem.safe_read import read_array_file
from distls.storage.model.bundle import read_bundle, write_bundle
from distls.testing.stores import StoreContract

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
        ("s3://key:secret@b/c", "s3://...@...: no names or keys in URLs; give credentials in the environment"),
        ("s3:///a", "s3:///a: expected s3://BUCKET/NAME, without '..', '?' and '#'"),
        ("s3://b/../a", "s3://b/../a: expected s3://BUCKET/NAME, without '..', '?' and '#'"),
        ("https://b/a?X-Amz-Signature=1", "https://b/a?...: expected https://BUCKET/NAME, without '..', '?' and '#'"),
        ("s3://b/a?x=1", "s3://b/a?...: expected s3://BUCKET/NAME, without '..', '?' and '#'"),
        ("s3://b/a\nb", "'s3://b/a\\nb': no control characters in URLs, and no bytes that are not UTF-8"),
        ("s3://b/\udcff", "'s3://b/\\udcff': no control characters in URLs, and no bytes that are not UTF-8"),
        ("gs://b\x7f", "'gs://b\\x7f': no control characters in URLs, and no bytes that are not UTF-8"),
        (Path("s3://b/a"), "s3:/b/a: a pathlib.Path drops a slash of URLs; give it as a text"),
    ],
)  # fmt: skip
def test_urls_that_are_refused(text, message):
    assert raised(ParameterError, place_of, text) == message


def test_names_are_those_of_paths():
    place, path = StorePath("s3://b", "a/c.tar.gz"), Path("/b/a/c.tar.gz")
    assert str(place) == "s3://b/a/c.tar.gz"
    for one in (place, path):
        assert (one.name, one.suffix, one.parent.name, one.with_name("d").name) == (
            "c.tar.gz", ".gz", "a", "d",
        )  # fmt: skip
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
    refuses(ValueError, "a whole bucket is not removed", StorePath("s3://b", "").remove)


# -- the same for both -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def faults():
    with object_store() as faults:
        yield faults


class TestDisk(StoreContract):
    @pytest.fixture
    def place(self, tmp_path):
        return tmp_path


class TestStore(StoreContract):
    @pytest.fixture
    def place(self, store):
        return store


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["disk", "store"])
def test_many_parts_come_back(kind, tmp_path, store):
    content = np.random.default_rng(0).integers(0, 256, 40 * 2**20, dtype=np.uint8)
    place = {"disk": tmp_path, "store": store}[kind] / "x"
    write_bytes(place, content[:5].data, b"", content[5:].data)
    assert np.array_equal(read_array_file(place), content)


# -- what is only so in a store --------------------------------------------------------------------------


@pytest.fixture
def store(faults, tmp_path):
    faults.heal()
    place = place_of(f"{BUCKET}/{tmp_path.name}")
    assert isinstance(place, StorePath)
    return place


def test_a_bundle_is_the_old_one_until_the_last_object(store, monkeypatch):
    """Fault: A writer that ends before the last object of a bundle | while a checkpoint is replaced | the old bundle"""
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
    """Fault: Every upload cut in the middle | one write | one line; no object"""
    faults.cut_writes_every = 1
    monkeypatch.setenv("DISTLS_STORE_RETRY_SECONDS", "0.2")
    from store_helpers import forget_clients

    forget_clients()
    said = raised(StorageError, write_bytes, store / "x", bytes(2**20))
    assert said.startswith(f"{store}/x: the object store fails (")
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


def test_an_endpoint_that_is_no_url_is_refused(monkeypatch):
    """The library would panic at its first request."""
    client.cache_clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "::::")
    refuses(ParameterError, "AWS_ENDPOINT_URL=::::: expected a URL", client, "s3://bucket")
