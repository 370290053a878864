"""Arrays of one chunk: ours against zarr's own, and every way in which a chunk can be wrong."""

import google_crc32c
import numpy as np
import pytest
import zarr
from helpers import examples, raised, refuses
from hypothesis import given
from hypothesis import strategies as st
from numcodecs.blosc import Blosc
from numcodecs.zstd import Zstd

from distls.storage.dataset.chunks import BufferPool, KeptBuffers, chunk_path, decoded_by, read_array, write_array
from distls.storage.errors import CorruptDataError, StorageError

CODECS = ["none", "zstd", "lz4"]
DTYPES = ["float32", "float64", "uint16", "uint32", "int32", "int64"]
SHAPES = [(1,), (7,), (1000,), (3, 5), (1, 1), (64, 33)]


def sample(shape, dtype):
    return (np.random.default_rng(3).integers(0, 50, shape) * 1.25).astype(dtype)


def read(folder, array, codec, expected, pool=None):
    pool = pool or BufferPool()
    return read_array(folder.parent, folder.name, array.shape, array.dtype, codec, expected, pool, "D: partition 0")


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("dtype", "shape"), zip(DTYPES, SHAPES, strict=True))
def test_written_by_us_read_by_both(tmp_path, codec, dtype, shape):
    array = sample(shape, dtype)
    expected = write_array(tmp_path / "a", array, codec)
    assert same(read(tmp_path / "a", array, codec, expected), array)
    by_zarr = zarr.open_array(str(tmp_path / "a"), mode="r")
    assert same(np.asarray(by_zarr[...]), array)
    assert by_zarr.nchunks == 1
    assert by_zarr.attrs["encoding-type"] == "array"


ZARR_CODECS = {
    "none": None,
    "zstd": zarr.codecs.ZstdCodec(level=1),
    "lz4": zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("shape", SHAPES)
def test_written_by_zarr_read_by_us(tmp_path, codec, shape):
    array = sample(shape, "float32")
    compressors = [c for c in (ZARR_CODECS[codec], zarr.codecs.Crc32cCodec()) if c is not None]
    made = zarr.create_array(str(tmp_path / "a"), shape=shape, chunks=shape, dtype="float32", compressors=compressors)
    made[...] = array
    chunk = chunk_path(tmp_path / "a", len(shape)).read_bytes()
    expected = len(chunk), int.from_bytes(chunk[-4:], "little")
    assert same(read(tmp_path / "a", array, codec, expected), array)


def test_equal_values_of_sparse_rows_are_not_shuffled(tmp_path):
    """Values that repeat are found sooner so; a buffer of either kind is read, as earlier versions wrote both alike."""
    values = np.random.default_rng(0).choice(np.log1p(np.arange(1, 200)), 50_000).astype(np.float32)
    plain, shuffled = (write_array(tmp_path / "a", values, "lz4"), write_array(tmp_path / "b", values[None], "lz4"))
    assert plain[0] < shuffled[0]
    for name, kind in (("a", "noshuffle"), ("b", "shuffle")):
        assert f'"shuffle": "{kind}"' in (tmp_path / name / "zarr.json").read_text()
    chunk_path(tmp_path / "b", 2).replace(chunk_path(tmp_path / "a", 1))
    assert same(read(tmp_path / "a", values, "lz4", shuffled), values)


@pytest.mark.parametrize("codec", CODECS)
def test_size_and_checksum_are_those_of_the_file(tmp_path, codec):
    size, checksum = write_array(tmp_path / "a", sample((40,), "float64"), codec)
    chunk = chunk_path(tmp_path / "a", 1).read_bytes()
    assert size == len(chunk)
    assert checksum == google_crc32c.value(chunk[:-4]) == int.from_bytes(chunk[-4:], "little")


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0)])
def test_an_empty_array_has_no_chunk(tmp_path, shape):
    array = np.empty(shape, np.float32)
    assert write_array(tmp_path / "a", array, "zstd") == (0, 0)
    assert not chunk_path(tmp_path / "a", len(shape)).exists()
    assert same(read(tmp_path / "a", array, "zstd", (0, 0)), array)
    assert zarr.open_array(str(tmp_path / "a"), mode="r")[...].shape == shape
    refuses(CorruptDataError, "9 bytes recorded, 0 expected for its shape", read, tmp_path / "a", array, "zstd", (9, 0))


def test_zarr_notices_the_same_flipped_byte(tmp_path):
    write_array(tmp_path / "a", sample((40,), "float32"), "none")
    path = chunk_path(tmp_path / "a", 1)
    content = bytearray(path.read_bytes())
    content[17] ^= 4
    path.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        zarr.open_array(str(tmp_path / "a"), mode="r")[...]


def refusal(folder, array, codec, expected):
    return raised(CorruptDataError, read, folder, array, codec, expected)


DAMAGE = {
    "truncated": (lambda b: b[:-1], "{less} bytes on disk, {size} recorded"),
    "emptied": (lambda b: b"", "0 bytes on disk, {size} recorded"),
    "extended": (lambda b: b + b"\0", "{more} bytes on disk, {size} recorded"),
    "flipped": (lambda b: bytes([b[0] ^ 1]) + b[1:], "its checksum does not match, bytes were changed"),
    "tail": (lambda b: b[:-1] + bytes([b[-1] ^ 128]), "its checksum does not match, bytes were changed"),
}


@pytest.mark.fast_cases("emptied-none", "extended-zstd", "flipped-zstd", "tail-zstd", "truncated-lz4")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", sorted(DAMAGE))
def test_damage_is_named(tmp_path, codec, kind):
    array = sample((40,), "float32")
    size, checksum = write_array(tmp_path / "data", array, codec)
    path = chunk_path(tmp_path / "data", 1)
    change, why = DAMAGE[kind]
    path.write_bytes(change(path.read_bytes()))
    why = why.format(size=size, less=size - 1, more=size + 1)
    message = refusal(tmp_path / "data", array, codec, (size, checksum))
    assert message == f"D: partition 0, array data: {why}; ingest the data set again"


def test_a_missing_chunk_is_named(tmp_path):
    array = sample((40,), "float32")
    expected = write_array(tmp_path / "data", array, "none")
    chunk_path(tmp_path / "data", 1).unlink()
    message = "D: partition 0, array data: its chunk is missing; ingest the data set again"
    assert refusal(tmp_path / "data", array, "none", expected) == message
    (tmp_path / "data" / "c").rmdir()
    (tmp_path / "data" / "c").write_bytes(b"")
    assert refusal(tmp_path / "data", array, "none", expected) == message


def test_what_the_system_refuses_to_read_is_one_line(tmp_path):
    array = sample((40,), "float32")
    expected = write_array(tmp_path / "data", array, "none")
    path = chunk_path(tmp_path / "data", 1)
    path.unlink()
    path.mkdir()
    said = raised(StorageError, read, tmp_path / "data", array, "none", expected)
    start = "D: partition 0, array data: it cannot be read: Is a directory ("
    assert said == f"{start}{path}); check the disk"


def test_a_consistent_chunk_other_than_the_recorded_one_is_refused(tmp_path):
    array = sample((40,), "float32")
    expected = write_array(tmp_path / "data", array, "none")
    write_array(tmp_path / "data", array + 1, "none")
    assert "its checksum does not match" in refusal(tmp_path / "data", array, "none", expected)


@pytest.mark.fast_cases("39-zstd", "140737488355328-lz4")
@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("claimed", [39, 41, 2**47])
def test_a_shape_that_the_frame_does_not_decode_to_takes_no_memory(tmp_path, codec, claimed):
    expected = write_array(tmp_path / "data", sample((40,), "float32"), codec)
    pool, name = BufferPool(), "data"
    with pytest.raises(CorruptDataError, match=f"it decodes to 160 bytes, {4 * claimed} expected"):
        read_array(tmp_path, name, (claimed,), np.dtype(np.float32), codec, expected, pool, "D")
    assert pool.n_bytes < 4096


def test_a_recorded_size_that_is_not_on_disk_takes_no_memory(tmp_path):
    write_array(tmp_path / "data", sample((40,), "float32"), "none")
    pool = BufferPool()
    with pytest.raises(CorruptDataError, match=f"164 bytes on disk, {2**50} recorded"):
        read_array(tmp_path, "data", (5,), np.dtype(np.float32), "zstd", (2**50, 0), pool, "D")
    assert pool.n_bytes == 0


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@examples(150)
@given(payload=st.binary(min_size=0, max_size=60), frame=st.booleans())
def test_garbage_with_a_right_checksum_is_refused(tmp_path_factory, codec, payload, frame):
    folder = tmp_path_factory.mktemp("garbage") / "data"
    if frame:  # the start of a real frame, so that the decoder is reached
        real = {"zstd": Zstd(level=1), "lz4": Blosc(cname="lz4")}[codec].encode(np.arange(50.0))
        payload = real[:22] + payload
        payload = payload[:12] + len(payload).to_bytes(4, "little") + payload[16:] if codec == "lz4" else payload
    write_array(folder, np.zeros(1), "none")
    checksum = google_crc32c.value(payload)
    chunk_path(folder, 1).write_bytes(payload + checksum.to_bytes(4, "little"))
    raised(CorruptDataError, read, folder, np.zeros(50), codec, (len(payload) + 4, checksum))


@pytest.mark.fast_cases("zstd-1", "zstd-65", "lz4-63", "lz4-20000")
@pytest.mark.parametrize("n", [1, 60, 63, 64, 65, 5_000, 20_000])
@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_every_width_of_the_declared_size(tmp_path, codec, n):
    array = np.arange(n, dtype=np.float32) // 7
    assert same(read(tmp_path / "a", array, codec, write_array(tmp_path / "a", array, codec)), array)


def test_a_pool_reuses_its_buffers(tmp_path):
    big, small = np.arange(1000.0), np.arange(10.0) + 5
    expected = [write_array(tmp_path / name, a, "zstd") for name, a in (("a", big), ("b", small))]
    pool = BufferPool()
    pool.take("x", 8000)
    first = read_array(tmp_path, "a", (1000,), big.dtype, "zstd", expected[0], pool, "D")
    held = pool.n_bytes
    (tmp_path / "a").rename(tmp_path / "old")
    (tmp_path / "b").rename(tmp_path / "a")
    second = read_array(tmp_path, "a", (10,), big.dtype, "zstd", expected[1], pool, "D")
    assert np.shares_memory(first, second)
    assert same(second, small)
    assert pool.n_bytes == held


def test_a_pool_grows_aligned():
    pool = BufferPool()
    for n_bytes in (0, 1, 63, 64, 1000, 999, 100_000):
        taken = pool.take("x", n_bytes)
        assert len(taken) == n_bytes
        assert taken.ctypes.data % 64 == 0
    assert pool.take("x", 5).ctypes.data == taken.ctypes.data
    assert not np.shares_memory(pool.take("y", 5), taken)
    assert 100_005 <= pool.n_bytes < 110_000


def test_kept_buffers_are_fresh_but_for_encoded_bytes():
    scratch = BufferPool()
    kept = KeptBuffers(scratch)
    assert not np.shares_memory(kept.take("data", 50), kept.take("data", 50))
    assert np.shares_memory(kept.take("data.encoded", 50), scratch.take("data.encoded", 50))
    assert len(kept.take("data", 77)) == 77


def test_decoded_by():
    assert decoded_by("zstd", np.zeros(10_000)) > 100
    assert decoded_by("zstd", np.random.default_rng(0).random(1000)) < 1.3
    assert decoded_by("zstd", np.empty(0)) == 1.0
