"""Column shards: what is read is what was written, by SciPy, zarr and AnnData too; nothing changed passes."""

import json
import shutil
from itertools import pairwise, product
from types import SimpleNamespace

import anndata
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from helpers import raised, refuses
from hypothesis import given
from hypothesis import strategies as st

from distls.storage.dataset.chunks import BufferPool
from distls.storage.dataset.column_shards import open_columns, publish_columns, shard_folder, write_shard
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import CorruptDataError, FormatError, IncompleteError, MismatchError
from distls.storage.rows import CscColumns, DenseColumns, index_dtype


def columns_of(x, start, stop):
    """Return columns as `write_shard` takes them; SciPy does the transposition."""
    if not sp.issparse(x):
        return DenseColumns(np.ascontiguousarray(x[:, start:stop].T))
    part = x.tocsc()[:, start:stop]
    part.sort_indices()
    return CscColumns(part.indptr.astype(np.int64), part.indices.astype(index_dtype(x.shape[0])), part.data)


def add(written, cuts, *, codec="none", fingerprint=None, shard_size=1000):
    """Publish the columns of a small dataset, cut at `cuts`."""
    x, folder = written.matrix, written.path / "making"
    bounds = [0, *cuts, x.shape[1]]
    records = [
        write_shard(folder, i, columns_of(x, a, b), x.shape[0], codec) for i, (a, b) in enumerate(pairwise(bounds))
    ]
    publish_columns(
        written.path, folder, records, dataset_fingerprint=fingerprint or written.dataset.fingerprint,
        shard_size=shard_size, codec=codec,
    )  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)
    return SimpleNamespace(path=written.path, dataset=open_dataset(written.path), x=x, bounds=bounds, records=records)


def arrays_of(x):
    names = ("XT",) if isinstance(x, DenseColumns) else ("indptr", "indices", "data")
    return dict(zip(names, x, strict=True))


def same(found, expected):
    return found.keys() == expected.keys() and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in ((found[name], expected[name]) for name in expected)
    )


@pytest.fixture(
    params=list(product(["csr", "dense"], [("none", "float32"), ("zstd", "float64"), ("lz4", "float32")])), ids=str
)
def made(request, small_csr, small_dense):
    layout, (codec, dtype) = request.param
    make = {"csr": small_csr, "dense": small_dense}[layout]
    return add(make(rows=(5, 0, 7, 1), dtype=dtype), [1, 9, 30], codec=codec)


def test_read_is_what_was_written_and_what_zarr_reads(made):
    shards, pool = made.dataset.columns, BufferPool()
    assert len(shards) == 4
    assert shards.first.tolist() == made.bounds
    for index, (a, b) in enumerate(pairwise(made.bounds)):
        shard = shards.read(index, pool)
        assert (shard.first, shard.n_columns) == (a, b - a)
        assert same(arrays_of(shard.x), arrays_of(columns_of(made.x, a, b)))
        assert all(array.flags.c_contiguous for array in shard.x)
        group = zarr.open_group(str(shard_folder(made.path / "columns", index)), mode="r")
        found = arrays_of(shard.x)
        assert same({name: np.asarray(group[name][...]) for name in found}, found)
        if sp.issparse(made.x):
            stored = anndata.io.read_elem(group)
            assert isinstance(stored, sp.csc_matrix | sp.csc_array)
            assert (stored != made.x[:, a:b]).nnz == 0


def test_counted_bytes_are_those_in_memory_and_on_disk(made):
    shards = made.dataset.columns
    for index in range(len(shards)):
        assert shards.decoded_bytes[index] == sum(a.nbytes for a in shards.read(index).x)
        chunks = shard_folder(made.path / "columns", index).rglob("c/**/0")
        assert shards.stored_bytes[index] == sum(p.stat().st_size for p in chunks if p.is_file())
    assert shards.table.nnz.sum() == made.dataset.meta.nnz
    for index in (-1, 4):
        refuses(IndexError, f"column shard {index} of 4", shards.read, index)
    # the data set is the same with them
    assert made.dataset.columns.digest != made.dataset.fingerprint
    shutil.rmtree(made.path / "columns")
    without = open_dataset(made.path)
    assert without.columns is None
    assert without.fingerprint == made.dataset.fingerprint


@given(data=st.data())
def test_any_cut_is_read_back(small_csr, data):
    n_features = data.draw(st.integers(1, 40))
    rows = tuple(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=4)))
    cuts = sorted(data.draw(st.sets(st.integers(1, n_features - 1)))) if n_features > 1 else []
    written = small_csr(rows=rows, n_features=n_features, seed=data.draw(st.integers(0, 99)), dtype="float64")
    made = add(written, cuts)
    shards = made.dataset.columns
    parts = [shards.read(i).x for i in range(len(shards))]
    whole = sp.hstack(
        [sp.csc_matrix((x.data, x.indices, x.indptr), (made.x.shape[0], len(x.indptr) - 1)) for x in parts]
    )
    assert (whole != made.x).nnz == 0


@pytest.mark.parametrize(("n_rows", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_index_width_follows_the_number_of_rows(small_csr, n_rows, dtype):
    made = add(small_csr(rows=(n_rows,), n_features=3), [1])
    x = made.dataset.columns.read(1).x
    assert x.indices.dtype == dtype
    assert same(arrays_of(x), arrays_of(columns_of(made.x, 1, 3)))


def test_new_shards_replace_the_old_ones(small_csr):
    written = small_csr()
    first = add(written, [10, 20]).dataset.columns
    second = add(written, [5], shard_size=2000).dataset.columns
    assert (len(first), len(second), second.shard_size) == (3, 2, 2000)
    assert second.digest != first.digest
    refuses(CorruptDataError, "column shard 0, array data", first.read, 0)


# -- what is not whole, or not ours ----------------------------------------------------------------------


def refusal(made, error):
    with pytest.raises(error) as caught:
        _ = open_dataset(made.path).columns
    assert "\n" not in str(caught.value)
    return str(caught.value)


def remedy(made):
    return f"; remove {made.path}/columns and run `distls columns {made.path}`"


def test_half_written_shards_are_none(small_csr):
    made = add(small_csr(), [10])
    (made.path / "columns" / "zarr.json").unlink()
    assert open_dataset(made.path).columns is None


def test_a_missing_shard_is_not_published(small_csr):
    written = small_csr()
    refuses(IncompleteError, "run `distls columns", add_without_the_first, written)
    assert open_dataset(written.path).columns is None


def add_without_the_first(written):
    x = written.matrix
    record = write_shard(written.path / "making", 1, columns_of(x, 0, x.shape[1]), x.shape[0], "none")
    publish_columns(
        written.path, written.path / "making", [record], dataset_fingerprint=written.dataset.fingerprint,
        shard_size=1, codec="none",
    )  # fmt: skip


def test_those_of_another_dataset_are_refused(small_csr):
    made = add(small_csr(), [10], fingerprint="0123456789abcdef" * 4)
    own = made.dataset.fingerprint
    assert refusal(made, MismatchError) == (
        f"{made.path}: its column shards are those of a data set with fingerprint 0123456789ab, its own is "
        f"{own[:12]}; run `distls columns {made.path}` to write them again"
    )


def change(made, **members):
    path = made.path / "columns" / "zarr.json"
    content = json.loads(path.read_text())
    content["attributes"]["distls_columns"] |= members
    path.write_text(json.dumps(content))


def test_another_version_is_refused(small_csr):
    made = add(small_csr(), [10])
    change(made, format_version=2)
    assert refusal(made, FormatError).endswith("version 2, this distls reads version 1")


@pytest.mark.fast_cases("members0", "members4", "members7")
@pytest.mark.parametrize(
    "members",
    [
        {"shard_size": 5},
        {"shard_size": 0},
        {"shard_size": "16MiB"},
        {"codec": "lz4"},
        {"codec": "brotli"},
        {"digest": ""},
        {"digest": None},
        {"more": 1},
    ],
)
def test_changed_metadata_is_refused(small_csr, members):
    made = add(small_csr(), [10])
    change(made, **members)
    assert refusal(made, CorruptDataError).endswith(remedy(made))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"attributes": {}}', '{"attributes": {"distls_columns": 3}}'])
def test_metadata_that_is_none_is_refused(small_csr, text):
    made = add(small_csr(), [10])
    (made.path / "columns" / "zarr.json").write_text(text)
    assert refusal(made, CorruptDataError).endswith(remedy(made))


def test_every_byte_of_the_table_is_covered(small_csr):
    made = add(small_csr(), [10, 30])
    chunks = [p for p in (made.path / "columns" / "shards").rglob("0") if p.is_file()]
    assert len(chunks) == 8
    for path in chunks:
        content = path.read_bytes()
        for position in range(len(content)):
            changed = bytearray(content)
            changed[position] ^= 1
            path.write_bytes(changed)
            refusal(made, CorruptDataError)
        path.unlink()
        refusal(made, CorruptDataError)
        path.write_bytes(content)
    assert len(open_dataset(made.path).columns) == 3


def test_a_table_that_does_not_fit_is_refused(small_csr):
    written, other = small_csr(seed=1), small_csr(seed=2, n_features=36)
    made = add(written, [10])
    shutil.rmtree(made.path / "columns")
    foreign = add(other, [10], fingerprint=written.dataset.fingerprint)
    shutil.copytree(foreign.path / "columns", made.path / "columns")
    assert "does not fit the metadata" in refusal(made, CorruptDataError)


@pytest.mark.fast_cases("csr-none", "dense-lz4")
@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_every_bit_of_a_tiny_shard(small_csr, small_dense, layout, codec):
    make = {"csr": small_csr, "dense": small_dense}[layout]
    made = add(make(rows=(3,), n_features=2, seed=2), [], codec=codec)
    shards, folder = made.dataset.columns, shard_folder(made.path / "columns", 0)
    for path in [p for p in folder.rglob("0") if p.is_file()]:
        name, content = path.relative_to(folder).parts[0], path.read_bytes()
        damaged = [bytes(content[:length]) for length in range(len(content))]
        for position, bit in product(range(len(content)), range(8)):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            damaged.append(bytes(changed))
        for each in damaged:
            path.write_bytes(each)
            assert_refused(shards, name)
        path.unlink()
        assert_refused(shards, name)
        path.write_bytes(content)
    assert same(arrays_of(shards.read(0).x), arrays_of(columns_of(made.x, 0, 2)))


def assert_refused(shards, name):
    message = raised(CorruptDataError, shards.read, 0, BufferPool())
    assert message.startswith(f"{shards.path}: column shard 0, array {name}: ")
    assert message.endswith(f"; remove {shards.path}/columns and run `distls columns {shards.path}`")


def test_inconsistent_offsets_are_refused(small_csr):
    written = small_csr()
    x = columns_of(written.matrix, 0, 37)
    for wrong in (x.indptr + 1, x.indptr[::-1], np.where(x.indptr == x.indptr[-1], 0, x.indptr)):
        bad = CscColumns(np.ascontiguousarray(wrong), x.indices, x.data)
        record = write_shard(written.path / "making", 0, bad, 16, "none")
        facts = dict(dataset_fingerprint=written.dataset.fingerprint, shard_size=1, codec="none")
        publish_columns(written.path, written.path / "making", [record], **facts)
        shards = open_columns(written.path, written.dataset.meta, written.dataset.fingerprint)
        refuses(CorruptDataError, "array indptr: column offsets are inconsistent; remove", shards.read, 0)
        shutil.rmtree(written.path / "making", ignore_errors=True)


def test_rows_of_partitions_follow_each_other(small_csr):
    assert small_csr(rows=(5, 0, 3)).dataset.first_rows.tolist() == [0, 5, 5, 8]
