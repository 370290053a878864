"""Partitions: what we read is what zarr and AnnData read, and no changed byte gets through."""

import shutil
from itertools import product

import anndata
import google_crc32c
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from helpers import examples, raised, refuses
from hypothesis import given
from hypothesis import strategies as st

from distls.storage.dataset import parts
from distls.storage.dataset.chunks import BufferPool
from distls.storage.dataset.dataset import open_dataset
from distls.storage.dataset.metadata import PartitionTable
from distls.storage.dataset.partitions import choose_codecs, partition_folder, read_partition, write_partition
from distls.storage.errors import CorruptDataError
from distls.storage.rows import CsrRows, DenseRows, Partition

# every layout with every codec, type and target
VARIANTS = [
    dict(layout=layout, codec=codec, dtype=dtype, target=target, weighted=weighted, n_features=n_features)
    for layout, (codec, dtype, target, weighted, n_features) in product(
        ["csr", "dense"],
        [
            ("none", "float32", "class", False, 37),
            ("zstd", "float64", "class", True, 37),
            ("lz4", "float32", "continuous", True, 5),
            ("lz4", "float64", "none", False, 1),
        ],
    )
]
VARIANTS += [
    dict(layout="csr", codec="zstd", dtype="float32", target="class", weighted=True, n_features=65_536),
    dict(layout="csr", codec="lz4", dtype="float64", target="class", weighted=False, n_features=65_537),
    dict(layout="csr", codec="none", dtype="float32", target="multilabel", weighted=False, n_features=37),
    dict(layout="dense", codec="zstd", dtype="float32", target="multilabel", weighted=True, n_features=37),
]


def name_of(options):
    return "-".join(str(value) for value in options.values())


@pytest.fixture(params=VARIANTS, ids=name_of)
def written(request, small_csr, small_dense):
    options = dict(request.param)
    make = {"csr": small_csr, "dense": small_dense}[options.pop("layout")]
    return make(rows=(5, 0, 7, 1), **options)


def arrays_of(partition):
    x, y, weight = partition
    arrays = {"X": x.values} if isinstance(x, DenseRows) else {"indptr": x.indptr, "indices": x.indices, "data": x.data}
    if isinstance(y, CsrRows):
        arrays |= {"y/indptr": y.indptr, "y/indices": y.indices, "y/data": y.data}
    elif y is not None:
        arrays["y"] = y
    return arrays if weight is None else arrays | {"sample_weight": weight}


def same(found, expected):
    return found.keys() == expected.keys() and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in ((found[name], expected[name]) for name in expected)
    )


def test_read_is_what_was_written_and_what_zarr_reads(written):
    pool, dataset = BufferPool(), open_dataset(written.path)
    for index, truth in enumerate(written.partitions):
        found = arrays_of(dataset.read(index, pool))
        assert same(found, arrays_of(truth))
        group = zarr.open_group(str(partition_folder(written.path, index)), mode="r")
        assert same({name: np.asarray(group[name][...]) for name in found}, found)
        # sparse groups open with AnnData
        for rows, member in ((truth.x, group), (truth.y, group.get("y"))):
            if isinstance(rows, CsrRows):
                stored = anndata.io.read_elem(member)
                width = written.dataset.meta.n_features if rows is truth.x else 3
                assert sp.issparse(stored)
                assert stored.shape == (len(rows.indptr) - 1, width)
                assert stored.indices.tolist() == rows.indices.tolist()
                assert stored.indptr.tolist() == rows.indptr.tolist()
                assert stored.data.tobytes() == rows.data.tobytes()
    meta = written.dataset.meta
    if meta.layout == "csr":
        width = np.uint16 if meta.n_features <= 65_536 else np.uint32
        assert written.dataset.read(0).x.indices.dtype == width


def test_counted_bytes_are_those_in_memory_and_on_disk(written):
    for index in range(len(written.dataset)):
        arrays = arrays_of(written.dataset.read(index)).values()
        assert written.dataset.decoded_bytes[index] == sum(a.nbytes for a in arrays)
        chunks = partition_folder(written.path, index).rglob("c/**/0")
        assert written.dataset.stored_bytes[index] == sum(p.stat().st_size for p in chunks if p.is_file())


# -- damage ----------------------------------------------------------------------------------------------


def chunks_of(path, index):
    folder = partition_folder(path, index)
    return {str(p.relative_to(folder)).split("/c/")[0]: p for p in sorted(folder.rglob("0")) if p.is_file()}


def assert_refused(dataset, index, name):
    message = raised(CorruptDataError, dataset.read, index, BufferPool())
    assert message.startswith(f"{dataset.path}: partition {index}, array {name}: ")
    assert message.endswith("; ingest the data set again")


@pytest.mark.slow_cases("(class-(zstd|lz4)|multilabel-(none|zstd))$")
@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
@pytest.mark.parametrize("target", ["class", "multilabel"])
def test_every_bit_of_a_tiny_partition(small_csr, codec, target):
    written = small_csr(rows=(1,), n_features=4, target=target, weighted=True, codec=codec, seed=2)
    for name, path in chunks_of(written.path, 0).items():
        content = path.read_bytes()
        for position, bit in product(range(len(content)), range(8)):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            path.write_bytes(changed)
            assert_refused(written.dataset, 0, name)
        for length in range(len(content)):
            path.write_bytes(content[:length])
            assert_refused(written.dataset, 0, name)
        path.unlink()
        assert_refused(written.dataset, 0, name)
        path.write_bytes(content)
    assert same(arrays_of(written.dataset.read(0)), arrays_of(written.partitions[0]))


@pytest.fixture(scope="module")
def larger(small_csr, small_dense):
    """Sets of several partitions to be damaged and mended again."""
    rows = (90, 0, 120)
    return [
        small_csr(rows=rows, weighted=True, codec="zstd", seed=1),
        small_csr(rows=rows, target="multilabel", codec="lz4", n_features=70_000, seed=2),
        small_dense(rows=rows, target="continuous", seed=3),
        small_dense(rows=rows, codec="zstd", dtype="float64", seed=4),
    ]


def damage(kind, content, place, bit, extra):
    position = int(place * len(content))
    if kind == "flip":
        return content[:position] + bytes([content[position] ^ 1 << bit]) + content[position + 1 :]
    if kind == "cut":
        return content[:position]
    if kind == "remove":
        return content[:position] + content[position + 1 :]
    if kind == "insert":
        return content[:position] + extra + content[position:]
    return content + extra


@examples(400)
@given(
    which=st.integers(0, 3),
    index=st.sampled_from([0, 1, 2]),
    file=st.integers(0, 20),
    kind=st.sampled_from(["flip", "flip", "flip", "cut", "remove", "insert", "extend", "missing"]),
    place=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7),
    extra=st.binary(min_size=1, max_size=9),
)
def test_no_damage_gets_through(larger, which, index, file, kind, place, bit, extra):
    dataset = larger[which].dataset
    chunks = chunks_of(dataset.path, index)  # the empty partition has chunks for its row offsets alone
    name, path = sorted(chunks.items())[file % len(chunks)] if chunks else (None, None)
    if path is None:
        return
    content = path.read_bytes()
    try:
        path.unlink() if kind == "missing" else path.write_bytes(damage(kind, content, place, bit, extra))
        assert_refused(dataset, index, name)
    finally:
        path.write_bytes(content)
    assert same(arrays_of(dataset.read(index)), arrays_of(larger[which].partitions[index]))


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_swapped_partitions_are_refused(small_dense, codec):
    written = small_dense(rows=(6, 6), codec=codec)
    one, other = (partition_folder(written.path, i) for i in range(2))
    one.rename(one.with_name("kept"))
    other.rename(one)
    one.with_name("kept").rename(other)
    for index in range(2):
        assert_refused(written.dataset, index, "X")


def test_swapped_arrays_of_equal_size_are_refused(small_csr):
    written = small_csr(rows=(6, 6))
    one, other = (partition_folder(written.path, i) / "y" for i in range(2))
    content = (one / "c" / "0").read_bytes()
    shutil.copy(other / "c" / "0", one / "c" / "0")
    (other / "c" / "0").write_bytes(content)
    for index in range(2):
        assert_refused(written.dataset, index, "y")


def test_the_groups_own_metadata_does_not_matter(small_csr):
    written = small_csr()
    for path in partition_folder(written.path, 0).rglob("zarr.json"):
        path.unlink()
    assert same(arrays_of(written.dataset.read(0)), arrays_of(written.partitions[0]))


# -- chunks that are whole and wrong ---------------------------------------------------------------------


def rewrite(written, name, array):
    """Store other numbers of the same kind with their right checksum; return the partition read so."""
    payload = array.tobytes()
    checksum = google_crc32c.value(payload)
    chunks_of(written.path, 0)[name].write_bytes(payload + checksum.to_bytes(4, "little"))
    old = written.dataset.table
    table = PartitionTable(old.rows, old.nnz, old.sizes, old.checksums | {name: np.array([checksum], np.uint32)})
    return read_partition(written.path, written.dataset.meta, table, 0, BufferPool())


@pytest.mark.parametrize("target", ["class", "multilabel"])
@pytest.mark.parametrize("change", ["first", "last", "falling"])
def test_inconsistent_row_offsets_are_refused(small_csr, target, change):
    written = small_csr(rows=(8,), target=target)
    name = "y/indptr" if target == "multilabel" else "indptr"
    indptr = arrays_of(written.partitions[0])[name].copy()
    indptr[{"first": 0, "last": -1, "falling": 4}[change]] += 1 if change != "falling" else 10**9
    message = f"{written.path}: partition 0, array {name}: row offsets are inconsistent; ingest the data set again"
    assert raised(CorruptDataError, rewrite, written, name, indptr) == message


@pytest.mark.parametrize(("target", "name"), [("class", "y"), ("multilabel", "y/indices")])
@pytest.mark.parametrize("code", [3, -1, 2**31 - 1])
def test_class_codes_out_of_range_are_refused(small_csr, target, name, code):
    written = small_csr(rows=(8,), target=target)
    codes = arrays_of(written.partitions[0])[name].copy()
    codes[2] = np.array(code).astype(codes.dtype)
    refuses(CorruptDataError, f"partition 0, array {name}: class codes out of range", rewrite, written, name, codes)
    codes[2] = 2
    assert arrays_of(rewrite(written, name, codes))[name][2] == 2


# -- writing ---------------------------------------------------------------------------------------------

TWO_ROWS = CsrRows(np.array([0, 2, 3]), np.array([0, 4, 4], np.uint16), np.array([3.0, 4.0, 2.0], np.float32))


def test_the_record_of_a_known_partition(tmp_path):
    weight = np.array([0.5, 2.0], np.float32)
    record = write_partition(tmp_path, 7, Partition(TWO_ROWS, np.array([2, 0], np.int32), weight), 5, 4, {})
    assert (record.index, record.rows, record.nnz) == (7, 2, 3)
    assert record.square_norm == 29.0
    assert record.label_counts == [1, 0, 1, 0]
    assert record.label_weights == [2.0, 0.0, 0.5, 0.0]
    assert record.weight_sum == 2.5
    assert record.sizes == {"data": 16, "indices": 10, "indptr": 28, "y": 12, "sample_weight": 12}
    assert record.checksums["data"] == google_crc32c.value(np.array([3, 4, 2], "<f4").tobytes())


def test_the_record_of_a_multilabel_partition(tmp_path):
    y = CsrRows(np.array([0, 2, 3]), np.array([0, 2, 2], np.uint32), np.ones(3, np.float32))
    record = write_partition(tmp_path, 0, Partition(TWO_ROWS, y, np.array([0.5, 2.0], np.float32)), 5, 3, {})
    assert record.label_counts == [1, 0, 2]
    assert record.label_weights == [0.5, 0.0, 2.5]
    without = write_partition(tmp_path, 0, Partition(TWO_ROWS, None), 5, 0, {})
    assert (without.label_counts, without.label_weights, without.weight_sum) == ([], [], 2.0)


def test_a_second_attempt_replaces_the_first(tmp_path):
    write_partition(tmp_path, 0, Partition(TWO_ROWS, np.array([1, 1], np.int32)), 5, 2, {})
    write_partition(tmp_path, 0, Partition(TWO_ROWS, None), 5, 0, {})
    assert sorted(p.name for p in partition_folder(tmp_path, 0).iterdir()) == [
        "data", "indices", "indptr", "zarr.json",
    ]  # fmt: skip
    assert [p.name for p in (tmp_path / "rows").iterdir()] == ["00000000"]


def test_a_failed_attempt_leaves_the_earlier_partition_and_nothing_else(tmp_path, monkeypatch):
    write_partition(tmp_path, 0, Partition(TWO_ROWS, None), 5, 0, {})
    write_array = parts.write_array

    def full_disk(folder, array, codec):
        if folder.name == "indptr":
            raise OSError(28, "No space left on device")
        return write_array(folder, array, codec)

    monkeypatch.setattr(parts, "write_array", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_partition(tmp_path, 0, Partition(TWO_ROWS, np.array([1, 1], np.int32)), 5, 2, {})
    assert [p.name for p in (tmp_path / "rows").iterdir()] == ["00000000"]
    assert not (partition_folder(tmp_path, 0) / "y").exists()


@pytest.mark.parametrize(
    ("compress", "compressible", "expected"),
    [("auto", True, "zstd"), ("auto", False, "none"), ("none", True, "none"), ("lz4", False, "lz4")],
)
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_codecs_are_chosen_by_trial(compress, compressible, expected, layout):
    values = np.zeros(6000, np.float32) if compressible else np.random.default_rng(0).random(6000, np.float32)
    x = DenseRows(values.reshape(60, 100))
    if layout == "csr":
        x = CsrRows(np.arange(61) * 100, np.tile(np.arange(100, dtype=np.uint16), 60), values)
    codecs = choose_codecs(Partition(x, np.zeros(60, np.int32)), compress)
    name = "X" if layout == "dense" else "data"
    assert codecs.pop(name) == expected
    assert set(codecs.values()) == {"none"}
    assert "y" in codecs
