"""Column shards of whole datasets: SciPy's transposition, cut by size; the same bytes however they are made."""

import shutil
from contextlib import closing
from itertools import pairwise

import msgspec
import numpy as np
import pytest
import scipy.sparse as sp
from helpers import examples, raised, refuses
from hypothesis import given
from hypothesis import strategies as st
from ingest_helpers import file_bytes, make_text

import distls
import distls.columns.sharding
from distls import generate, ingest, open_dataset
from distls.columns.sharding import add_columns, cut_columns
from distls.execution.dask.local_cluster import start_local
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.execution.serial import SerialExecutor
from distls.memory_plan import BASE_BYTES, check_workers
from distls.storage.errors import (
    CorruptDataError,
    MemoryPlanError,
    MismatchError,
    ParameterError,
    StorageError,
    WorkerError,
)
from distls.storage.rows import CscColumns, DenseColumns, index_dtype
from distls.storage.temporary.transpose_spill import SpillArea
from distls.testing.formats import Dying, Killed, Reversed

ROWS = (30, 0, 41, 22, 35, 18)


def assert_transposed(path, x):
    """The shards of `path` are the columns of `x`, in order, each once."""
    shards = open_dataset(path).columns
    n_rows, n_features = x.shape
    assert shards.first[0] == 0
    assert shards.first[-1] == n_features
    for index, (start, stop) in enumerate(pairwise(shards.first)):
        shard = shards.read(index)
        assert (shard.first, shard.n_columns) == (start, stop - start)
        if not sp.issparse(x):
            assert isinstance(shard.x, DenseColumns)
            assert shard.x.values.dtype == x.dtype
            assert shard.x.values.tobytes() == np.ascontiguousarray(x[:, start:stop].T).tobytes()
            continue
        assert isinstance(shard.x, CscColumns)
        truth = x[:, start:stop].tocsc()
        truth.sort_indices()
        assert shard.x.indices.dtype == index_dtype(n_rows)
        assert shard.x.indptr.dtype == np.int64
        assert shard.x.data.dtype == x.dtype
        assert shard.x.indptr.tolist() == truth.indptr.tolist()
        assert shard.x.indices.tolist() == truth.indices.tolist()
        assert shard.x.data.tobytes() == truth.data.tobytes()


@pytest.mark.fast_cases("csr-none-float32", "dense-zstd-float64")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_columns_are_those_of_the_rows(small_csr, small_dense, layout, codec, dtype):
    make = {"csr": small_csr, "dense": small_dense}[layout]
    written = make(rows=ROWS, codec=codec, dtype=dtype)
    made = add_columns(written.path)
    assert_transposed(written.path, written.matrix)
    assert made.fingerprint == written.dataset.fingerprint
    assert len(made.columns) == 8
    assert not SpillArea(written.path).folder.exists()


@examples(40)
@given(data=st.data())
def test_any_dataset_and_any_size(small_csr, small_dense, data):
    make = data.draw(st.sampled_from([small_csr, small_dense]))
    written = make(
        rows=tuple(data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=5))),
        n_features=data.draw(st.integers(1, 60)),
        seed=data.draw(st.integers(0, 10**6)),
    )
    add_columns(written.path, shard_size=data.draw(st.integers(1, 3000)))
    assert_transposed(written.path, written.matrix)


@pytest.mark.fast_cases("65536")
@pytest.mark.parametrize(("n_rows", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_rows_are_numbered_by_the_smallest_type(small_csr, n_rows, dtype):
    written = small_csr(rows=(n_rows - 9, 9), n_features=3)
    assert add_columns(written.path).columns.read(0).x.indices.dtype == dtype
    assert_transposed(written.path, written.matrix)


def test_one_column(small_csr, small_dense):
    for make in (small_csr, small_dense):
        written = make(n_features=1)
        assert len(add_columns(written.path).columns) == 1
        assert_transposed(written.path, written.matrix)


def test_without_rows(small_csr, small_dense):
    for make in (small_csr, small_dense):
        written = make(rows=(0,), n_features=9)
        assert len(add_columns(written.path).columns) == 8
        assert_transposed(written.path, written.matrix)


def test_the_codec_is_that_of_the_rows_where_it_is_worth_it(tmp_path):
    (train, _) = generate("rcv1-4", tmp_path / "d", rows=3000, columns=True)
    # the values of a row are equal, those of a column are not
    assert (train.meta.codecs["data"], train.columns.codec) == ("zstd", "none")
    (tmp_path / "a.svm").write_text("".join(f"{i % 2} {i % 40 + 1}:1\n" for i in range(5000)))
    ingest(tmp_path / "a.svm", tmp_path / "ones", columns=True)
    ones = open_dataset(tmp_path / "ones")
    assert (ones.meta.codecs["data"], ones.columns.codec) == ("zstd", "zstd")
    x = sp.csr_matrix((np.ones(5000, "f4"), np.arange(5000) % 40, np.arange(5001)))
    assert ones.columns.table.nnz.sum() == x.nnz


# -- cuts ------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 3000))
def test_cuts_cover_all_columns_in_shards_of_about_equal_bytes(sizes, shard_size):
    sizes = np.array(sizes, dtype=np.int64)
    cuts = cut_columns(sizes, shard_size)
    total = int(sizes.sum())
    wanted = min(max(-(-total // shard_size), 8), len(sizes))
    assert len(cuts) == wanted + 1
    assert cuts[0] == 0
    assert cuts[-1] == len(sizes)
    assert all(np.diff(cuts) > 0)
    shards = np.add.reduceat(sizes, cuts[:-1]) if wanted else sizes
    # a shard is an even share of what is left, but for half of the column at its end
    assert shards.max(initial=0) <= -(-total // max(wanted, 1)) + int(sizes.max(initial=0))


def test_equal_columns_are_dealt_equally():
    assert np.diff(cut_columns(np.full(1000, 7), 700)).tolist() == [100] * 10
    assert np.diff(cut_columns(np.full(16, 7), 10**6)).tolist() == [2] * 8


def test_a_huge_column_has_a_shard_of_its_own():
    sizes = np.full(800, 10)
    sizes[400] = 10**6
    shards = np.add.reduceat(sizes, cut_columns(sizes, 10**9)[:-1])
    assert len(shards) == 8
    assert sorted(shards)[-1] < 10**6 + 5000
    assert sorted(shards)[-2] < 5000


# -- the same bytes --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Text in some twenty partitions, sparse; and rows in as many, dense."""
    root = tmp_path_factory.mktemp("many")
    (root / "a.svm").write_text(make_text(n_rows=600))
    ingest(root / "a.svm", root / "sparse", partition_size=2000)
    x = np.random.default_rng(0).standard_normal((600, 23)).astype(np.float32)
    ingest(x, root / "dense", y=np.arange(600) % 3, partition_size=3000)
    for name in ("sparse", "dense"):
        shutil.copytree(root / name, root / f"{name}-whole")
        add_columns(root / f"{name}-whole", shard_size=900)
        assert len(open_dataset(root / name)) > 10
        assert len(open_dataset(root / f"{name}-whole").columns) > 10
    return root


def copy(many, name, tmp_path):
    return shutil.copytree(many / name, tmp_path / name)


@pytest.mark.fast_cases("1-sparse")
@pytest.mark.parametrize("name", ["sparse", "dense"])
@pytest.mark.parametrize("batch", [1, 5000, 10**9])
def test_bundles_and_schedules_leave_no_trace(many, tmp_path, monkeypatch, name, batch):
    path = copy(many, name, tmp_path)
    monkeypatch.setattr(distls.columns.sharding._Room, "batch", lambda room, least: batch)
    add_columns(path, shard_size=900, executor=Reversed())
    assert file_bytes(path) == file_bytes(many / f"{name}-whole")


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "threads"), [(1, 1), (2, 1), (1, 3)])
def test_workers_leave_no_trace(many, tmp_path, workers, threads):
    with closing(start_local(workers, threads, processes=workers > 1)) as executor:
        for name in ("sparse", "dense"):
            path = copy(many, name, tmp_path)
            add_columns(path, shard_size=900, executor=executor)
            assert file_bytes(path) == file_bytes(many / f"{name}-whole")


# -- what is there, and what was stopped -----------------------------------------------------------------


@pytest.fixture
def small_batches(monkeypatch):
    """Many groups and bundles of little data."""
    monkeypatch.setattr(distls.columns.sharding._Room, "batch", lambda room, least: least)


class Untouched:
    """An executor that must not be asked."""

    slots = 1
    map = reduce = each_worker = None


def test_what_is_there_is_left_alone(many):
    path = many / "sparse-whole"
    before = file_bytes(path)
    for size in (None, 900):
        assert add_columns(path, shard_size=size, executor=Untouched()).columns is not None
    assert file_bytes(path) == before


def test_another_size_replaces_them(many, tmp_path):
    path = copy(many, "sparse", tmp_path)
    first = add_columns(path, shard_size=5000).columns
    second = add_columns(path, shard_size=900).columns
    assert (first.shard_size, second.shard_size) == (5000, 900)
    assert len(second) > len(first)
    assert file_bytes(path) == file_bytes(many / "sparse-whole")


def test_those_of_another_dataset_are_replaced(many, tmp_path):
    path = copy(many, "sparse", tmp_path)
    shutil.copytree(many / "dense-whole" / "columns", path / "columns")
    with pytest.raises(MismatchError, match="to write them again"):
        _ = open_dataset(path).columns
    add_columns(path, shard_size=900)
    assert file_bytes(path) == file_bytes(many / "sparse-whole")


@pytest.mark.fast_cases(r"0\.0-sparse")
@pytest.mark.parametrize("name", ["sparse", "dense"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 0.6, 0.95])
@pytest.mark.usefixtures("small_batches")
def test_killed_anywhere_it_resumes_to_the_same_bytes(many, tmp_path, name, share):
    path, counter = copy(many, name, tmp_path), Dying(10**6)
    add_columns(copy(many, name, tmp_path / "other"), shard_size=900, executor=counter)
    tasks = int(share * (10**6 - counter.tasks))
    with pytest.raises(Killed):
        add_columns(path, shard_size=900, executor=Dying(tasks))
    assert open_dataset(path).columns is None
    groups = {p: p.stat().st_mtime_ns for p in SpillArea(path).folder.rglob("groups/*.bin")}
    shards = {p: p.stat().st_mtime_ns for p in SpillArea(path).shards.rglob("0") if p.is_file()}
    assert len(groups) == min(tasks, len(open_dataset(path)))
    assert bool(shards) == (tasks > len(groups))
    left_over = SpillArea(path).shards / "00000001.12345678.partial"
    left_over.mkdir()  # a shard that was being written
    executor = Noting(path)
    add_columns(path, shard_size=900, executor=executor)
    assert executor.groups.items() >= groups.items()
    published = {p.relative_to(SpillArea(path).shards): t for p, t in shards.items()}
    found = {p: (path / "columns" / p).stat().st_mtime_ns for p in published}
    assert found == published
    assert file_bytes(path) == file_bytes(many / f"{name}-whole")


class Noting(Dying):
    """Notes when the files of groups were written."""

    def __init__(self, path):
        super().__init__(-1)
        self.path, self.groups = path, {}

    def each_worker(self, function, item):
        self.groups = {p: p.stat().st_mtime_ns for p in SpillArea(self.path).folder.rglob("groups/*.bin")}
        return super().each_worker(function, item)


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_killed_after_the_rename_nothing_is_left(many, tmp_path, monkeypatch):
    path = copy(many, "sparse", tmp_path)
    add_columns(path, shard_size=1000)

    rename = distls.columns.sharding.publish_columns

    def dies_after(*args, **facts):
        rename(*args, **facts)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(distls.columns.sharding, "publish_columns", dies_after)
        with pytest.raises(Killed):
            add_columns(path, shard_size=900)
    assert SpillArea(path).folder.exists()
    assert open_dataset(path).columns.shard_size == 900
    # the shards that were replaced, and the notes of the new ones, do not pass for a start
    without = shutil.copytree(path, tmp_path / "without")
    shutil.rmtree(without / "columns")
    add_columns(without, shard_size=900)
    assert file_bytes(without) == file_bytes(many / "sparse-whole")
    add_columns(path, executor=Untouched())
    assert file_bytes(path) == file_bytes(many / "sparse-whole")


@pytest.mark.slow
def test_killed_before_the_rename_it_resumes(many, tmp_path, monkeypatch):
    path = copy(many, "sparse", tmp_path)

    def dies(*_, **__):
        raise Killed

    monkeypatch.setattr("distls.storage.dataset.column_shards.replace_directory", dies)
    with pytest.raises(Killed):
        add_columns(path, shard_size=900)
    assert open_dataset(path).columns is None
    monkeypatch.undo()
    add_columns(path, shard_size=900)
    assert file_bytes(path) == file_bytes(many / "sparse-whole")


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_what_is_half_made_is_finished_first(many, tmp_path):
    path = copy(many, "sparse", tmp_path)
    add_columns(path, shard_size=1000)
    with pytest.raises(Killed):
        add_columns(path, shard_size=900, executor=Dying(3))
    assert open_dataset(path).columns.shard_size == 1000
    assert add_columns(path).columns.shard_size == 900
    assert file_bytes(path) == file_bytes(many / "sparse-whole")


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_what_another_size_or_dataset_left_is_not_used(many, tmp_path):
    path = copy(many, "sparse", tmp_path)
    for size in (1000, 1100):
        with pytest.raises(Killed):
            add_columns(path, shard_size=size, executor=Dying(25))
    add_columns(path, shard_size=900)
    assert file_bytes(path) == file_bytes(many / "sparse-whole")


@pytest.mark.fast_cases("$")
@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": 1, "groups": []}'])
def test_a_plan_that_is_none_is_made_anew(many, tmp_path, text):
    path = copy(many, "sparse", tmp_path)
    with pytest.raises(Killed):
        add_columns(path, shard_size=900, executor=Dying(3))
    (SpillArea(path).folder / "plan.json").write_text(text)
    add_columns(path, shard_size=900)
    assert file_bytes(path) == file_bytes(many / "sparse-whole")


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("cut", [0, 8, 100])
def test_a_group_that_was_cut_short_is_written_anew(many, tmp_path, cut):
    path = copy(many, "sparse", tmp_path)
    with pytest.raises(Killed):
        add_columns(path, shard_size=900, executor=Dying(3))
    group = sorted(SpillArea(path).folder.rglob("groups/*.bin"))[1]
    group.write_bytes(group.read_bytes()[:cut])
    add_columns(path, shard_size=900)
    assert file_bytes(path) == file_bytes(many / "sparse-whole")


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_groups_that_were_changed_are_refused(many, tmp_path):
    # one bundle a shard, so that columns move between bundles
    path = copy(many, "sparse", tmp_path)
    groups = len(open_dataset(path))
    with pytest.raises(Killed):
        add_columns(path, shard_size=900, executor=Dying(groups))
    group = SpillArea(path).folder / "groups" / "00000002.bin"
    good = np.fromfile(group, dtype="<i8", count=51)
    for wrong in (good[::-1], good + np.eye(51, dtype=np.int64)[50], 0 * good):
        content = bytearray(group.read_bytes())
        content[: good.nbytes] = wrong.astype("<i8").tobytes()
        group.write_bytes(content)
        said = raised(CorruptDataError, add_columns, path, shard_size=900)
        assert said == (f"{path}/.columns: damaged; remove it and run `distls columns {path}`")
    SpillArea(path).remove()
    add_columns(path, shard_size=900)
    assert file_bytes(path) == file_bytes(many / "sparse-whole")


@pytest.mark.slow
def test_every_worker_must_see_the_shards(many, tmp_path):
    path = shutil.copytree(many / "sparse-whole", tmp_path / "d")
    data = open_dataset(path)
    check_workers(SerialExecutor(), data, None, columns=data.columns)
    add_columns(path, shard_size=1000)
    check_workers(SerialExecutor(), data, None)
    assert raised(WorkerError, check_workers, SerialExecutor(), data, None, columns=data.columns) == (
        f"worker this process: {path}: the job expects column shards with digest {data.columns.digest[:12]}, there "
        f"are those with digest {open_dataset(path).columns.digest[:12]}; they were replaced or removed, or this "
        "worker sees another file system"
    )


def test_a_worker_that_cannot_write_is_named(many, tmp_path, monkeypatch):
    path = copy(many, "sparse", tmp_path)
    monkeypatch.setattr(SerialExecutor, "each_worker", lambda self, function, item: {"w1": "no such place"})
    refuses(WorkerError, "worker w1: no such place", add_columns, path)


# -- memory and refusals ---------------------------------------------------------------------------------


def limited(room):
    """Return a worker with so many bytes beside what it always needs."""
    return MemoryBudget(int((BASE_BYTES + room) / 0.92) + 1)


@pytest.mark.slow
def test_little_memory_means_more_and_smaller_groups(many, tmp_path):
    path, noted = copy(many, "sparse", tmp_path), []
    total = int(open_dataset(path).decoded_bytes.sum())
    largest = int(open_dataset(path).decoded_bytes.max())

    class Counting(Reversed):
        def map(self, function, items, *, shared=None):
            noted.append(len(items))
            return super().map(function, items, shared=shared)

    add_columns(path, shard_size=900, executor=Counting(), memory=limited(4 * largest + 2000))
    assert noted[0] >= total / (2 * largest)
    assert noted[1] > 5
    shutil.rmtree(path / "columns")
    add_columns(path, shard_size=900, executor=Counting(), memory=limited(100 * MIB))
    assert noted[2:] == [1, 1]
    assert file_bytes(path) == file_bytes(many / "sparse-whole")


@pytest.mark.fast_cases("900")
@pytest.mark.parametrize("size", [900, 10**7])
def test_what_cannot_fit_is_refused_before_anything_is_read(many, tmp_path, size):
    path = copy(many, "sparse", tmp_path)
    with pytest.raises(MemoryPlanError) as caught:
        add_columns(path, shard_size=size, executor=Untouched(), memory=MemoryBudget(200 * MIB))
    message = str(caught.value)
    assert message.startswith(f"{path}: a worker needs ")
    assert "\n" not in message
    least = int(message.split("--memory-limit ")[1].split("MiB")[0])
    assert not SpillArea(path).folder.exists()
    add_columns(path, shard_size=900, memory=MemoryBudget(least * MIB))
    assert file_bytes(path) == file_bytes(many / "sparse-whole")


def test_a_column_that_does_not_fit_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(distls.columns.sharding, "BASE_BYTES", 0)
    x = sp.csr_matrix(np.ones((20_000, 1), np.float32))
    ingest(x, tmp_path / "d", y=np.arange(20_000) % 2, partition_size=4000)
    said = raised(MemoryPlanError, add_columns, tmp_path / "d", shard_size=1000, memory=MemoryBudget(100_000))
    assert "for a column shard of 117 KiB" in said
    assert said.endswith("MiB, or give a smaller --shard-size")
    # what was read is kept
    assert (tmp_path / "d" / ".columns" / "groups" / "00000000.bin").exists()
    add_columns(tmp_path / "d", shard_size=1000, memory=MemoryBudget(MIB))
    assert_transposed(tmp_path / "d", x)


def test_refusals(many, small_csr, monkeypatch):
    refuses(ParameterError, "shard_size must be at least 1 byte, not 0", add_columns, many / "sparse", shard_size=0)
    written = small_csr()
    data = open_dataset(written.path)
    object.__setattr__(data, "meta", msgspec.structs.replace(data.meta, n_rows=2**32 + 1))
    monkeypatch.setattr(distls.columns.sharding, "open_dataset", lambda path: data)
    refuses(ParameterError, "4294967297 rows; column shards number at most 2\\^32", add_columns, written.path)


def test_a_folder_that_cannot_be_written_is_named(many, tmp_path, monkeypatch):
    path = copy(many, "sparse", tmp_path)

    def refuse(*_):
        raise PermissionError(13, "Permission denied", "there")

    monkeypatch.setattr(SpillArea, "create", refuse)
    assert raised(StorageError, add_columns, path) == (
        f"{path}: its column shards are incomplete: permission denied (there); run `distls columns {path}` to go on, "
        f"or remove {path}/.columns"
    )


def test_a_damaged_partition_is_named(many, tmp_path):
    path = copy(many, "sparse", tmp_path)
    (path / "rows" / "00000004" / "data" / "c" / "0").unlink()
    refuses(CorruptDataError, "partition 4, array data: its chunk is missing", add_columns, path)
    assert open_dataset(path).columns is None


# -- with ingest and generate ----------------------------------------------------------------------------


def test_at_ingest(many, tmp_path):
    distls.ingest(many / "a.svm", tmp_path / "d", partition_size=2000, split=["test=0.2"], columns=True)
    assert open_dataset(tmp_path / "d").columns is not None
    assert open_dataset(tmp_path / "d-test").columns is None


def test_an_ingest_whose_columns_were_stopped_says_how_to_go_on(many, tmp_path, monkeypatch):
    def dies(*_, **__):
        SpillArea(tmp_path / "d").create()
        raise Killed

    monkeypatch.setattr("distls.columns.sharding.add_columns", dies)
    with pytest.raises(Killed):
        ingest(many / "a.svm", tmp_path / "d", columns=True)
    assert raised(StorageError, ingest, many / "a.svm", tmp_path / "d", columns=True) == (
        f"{tmp_path}/d: exists already, but for its column shards; run `distls columns {tmp_path}/d` to finish them"
    )


@pytest.mark.slow
def test_at_generation(tmp_path):
    train, test = distls.generate("axis", tmp_path / "d", rows=300, columns=True)
    assert train.columns is not None
    assert test.columns is None


def test_progress_reaches_its_end(many, tmp_path):
    told = []
    add_columns(copy(many, "sparse", tmp_path), shard_size=900, progress=lambda *step: told.append(step))
    stages = list(dict.fromkeys(stage for _, _, stage in told))
    assert stages == ["reading rows", "writing columns"]
    for stage in stages:
        steps = [(done, total) for done, total, name in told if name == stage]
        assert steps[0][0] == 0
        assert steps[-1][0] == steps[-1][1] > 0
