"""Reading partitions one after the other: order, cache, budget, accounting, failures."""

import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
from helpers import examples, raised, refuses
from hypothesis import given
from hypothesis import strategies as st

from distls.columns.sharding import add_columns
from distls.storage.dataset.dataset import open_dataset
from distls.storage.dataset.partitions import partition_folder
from distls.storage.errors import CorruptDataError, MismatchError
from distls.storage.rows import CsrRows, DenseRows, Partition
from distls.workers.rounds import block_stream as stream_module
from distls.workers.rounds.block_stream import (
    DatasetRef,
    Form,
    cached_bytes,
    clear_cache,
    open_ref,
    stream,
    stream_columns,
)
from distls.workers.rounds.ledger import Ledger

ROWS = (30, 0, 41, 22, 35, 18)


@pytest.fixture(autouse=True)
def _fresh():
    clear_cache()
    yield
    clear_cache()


@pytest.fixture(scope="module")
def sets(small_csr, small_dense):
    """Three datasets whose partitions differ in size."""
    return [
        small_csr(rows=ROWS, weighted=True, codec="zstd"),
        small_dense(rows=ROWS, target="continuous", seed=5),
        small_csr(rows=ROWS, target="multilabel", seed=6),
    ]


def ref(written, cache_bytes=0, prefetch=True):
    return DatasetRef(str(written.path), written.dataset.fingerprint, cache_bytes, prefetch)


def flat(partition):
    y = partition.y if isinstance(partition.y, CsrRows) else (partition.y,)
    arrays = [*partition.x, *y, partition.sample_weight]
    return [None if a is None else (a.dtype, a.shape, a.tobytes()) for a in arrays]


def read(reference, indices, stats=None):
    return [(i, flat(part)) for i, part in stream(reference, indices, stats or Ledger())]


def truth(written, indices):
    return [(i, flat(written.partitions[i])) for i in indices]


@pytest.mark.fast_cases(
    "indices0-0-True-0", "indices0-9000-True-2", "indices0-1000000000-False-1", "indices1-9000-True-0",
    "indices1-1000000000-True-2", "indices2-0-False-1", "indices2-1000000000-True-1", "indices3-0-False-0",
    "indices3-9000-False-2", "indices4-0-True-1", "indices4-9000-False-0", "indices4-1000000000-False-2",
)  # fmt: skip
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("cache_bytes", [0, 9_000, 10**9])
@pytest.mark.parametrize("indices", [[0, 1, 2, 3, 4, 5], [5, 0, 3], [2], [], [4, 4, 4, 1, 1, 4]])
def test_the_right_arrays_in_the_right_order(sets, which, prefetch, cache_bytes, indices):
    written = sets[which]
    for _ in range(3):
        assert read(ref(written, cache_bytes, prefetch), indices) == truth(written, indices)


REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 2),  # dataset
        st.lists(st.integers(0, len(ROWS) - 1), min_size=1, max_size=8),
        st.integers(0, 40_000),  # budget
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@examples(120)
@given(REQUESTS)
def test_the_budget_is_never_exceeded(sets, requests):
    clear_cache()
    for which, indices, budget, prefetch in requests:
        written, before = sets[which], cached_bytes()
        allowed = budget or before  # no budget: what other fits keep stays as it is
        for index, part in stream(ref(written, budget, prefetch), indices, Ledger()):
            assert cached_bytes() <= allowed
            assert flat(part) == flat(written.partitions[index])
        assert cached_bytes() <= allowed
        assert cached_bytes() == kept_bytes()


def kept_bytes():
    """What the kept arrays really take."""
    total = 0
    for part in stream_module._CACHE.kept.values():
        y = part.y if isinstance(part.y, CsrRows) else (part.y,)
        total += sum(a.nbytes for a in (*part.x, *y, part.sample_weight) if a is not None)
    return total


@examples(60)
@given(st.integers(1, 40_000), st.lists(st.permutations(range(len(ROWS))), min_size=2, max_size=4))
def test_nothing_is_evicted_within_a_fit(sets, budget, passes):
    clear_cache()
    kept = set()
    for order in passes:
        for _ in stream(ref(sets[0], budget), order, Ledger()):
            now = set(stream_module._CACHE.kept)
            assert kept <= now
            kept = now


def test_the_cache_fills_up_to_the_budget(sets):
    sizes = sets[0].dataset.decoded_bytes
    budget = int(sizes[:4].sum()) + 1
    read(ref(sets[0], budget), range(6))
    assert {index for _, index in stream_module._CACHE.kept} >= {0, 1, 2, 3}
    assert cached_bytes() <= budget
    assert budget - cached_bytes() < sizes[4:].min()


def test_partitions_of_an_earlier_dataset_make_way(sets):
    one, other = sets[0], sets[1]
    budget = int(max(one.dataset.decoded_bytes.sum(), other.dataset.decoded_bytes.sum()))
    read(ref(one, budget), range(6))
    assert {f for f, _ in stream_module._CACHE.kept} == {one.dataset.fingerprint}
    read(ref(other, budget), range(6))
    assert [i for f, i in stream_module._CACHE.kept if f == other.dataset.fingerprint] == list(range(6))
    stats = Ledger()
    read(ref(other, budget), range(6), stats)
    assert stats.bytes_read == 0


def test_partitions_that_cannot_fit_push_nobody_out(sets):
    one, other = sets[0], sets[1]
    budget = int(other.dataset.decoded_bytes.max()) - 1
    largest = int(other.dataset.decoded_bytes.argmax())
    read(ref(one, budget), range(6))
    kept = list(stream_module._CACHE.kept)
    read(ref(other, budget), [largest])
    assert list(stream_module._CACHE.kept) == kept != []


def test_scoring_another_dataset_leaves_the_training_data_in_the_cache(sets):
    read(ref(sets[0], 10**6), range(6))
    read(ref(sets[1]), range(6))
    stats = Ledger()
    read(ref(sets[0], 10**6), range(6), stats)
    assert stats.bytes_read == 0


def halved(partition):
    """A form of a dense partition: half of its columns."""
    values = partition.x.values
    x = DenseRows(values[:, : values.shape[1] // 2].copy())
    return Partition(x, partition.y.copy(), None)


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("cache_bytes", [0, 10**9])
def test_a_form_is_kept_instead_of_the_partition(sets, prefetch, cache_bytes):
    written, made = sets[1], []

    def make(partition):
        made.append(len(partition.x.values))
        return halved(partition)

    order, expected = [4, 0, 3, 4], [flat(halved(written.partitions[i])) for i in (4, 0, 3, 4)]
    reference, form = ref(written, cache_bytes, prefetch), Form("half", make)
    for _ in range(2):
        found = [flat(part) for _, part in stream(reference, order, Ledger(), form)]
        assert found == expected
    assert made == ([35, 30, 22] if cache_bytes else [35, 30, 22, 35] * 2)
    kept = sum(halved(written.partitions[i]).x.values.nbytes + written.partitions[i].y.nbytes for i in (4, 0, 3))
    assert cached_bytes() == (kept if cache_bytes else 0)
    # the partitions themselves are another thing
    assert read(reference, [0, 3]) == truth(written, [0, 3])


def test_a_form_that_is_read_in_turns_with_its_partitions_stays(sets):
    """What is left by the form is the partitions', which make way for it, and not the other way around."""
    clear_cache()
    written, made = sets[1], []
    sizes = written.dataset.decoded_bytes
    reference = replace(ref(written, int(sizes.sum()) - 1), beside=True)
    for name in ("one", "other"):
        form = Form(name, lambda partition: made.append(1) or halved(partition), beside=True)
        for turn in range(3):
            before, costs = len(made), Ledger()
            assert read(reference, range(6)) == truth(written, range(6))
            for index, part in stream(reference, range(6), costs, form):
                assert flat(part) == flat(halved(written.partitions[index]))
            assert (len(made) > before) == (turn == 0), "only the first turn makes it"
            # partly of partitions that are there
            assert costs.cached_bytes > 0
            assert costs.bytes_read == 0 or turn == 0
        own = [key[1][0] for key in stream_module._CACHE.kept if isinstance(key[1], tuple)]
        assert own.count(name) == 6, "a form of earlier columns makes way"
        assert len(own) < len(stream_module._CACHE.kept)
    assert len(made) == 12
    # a fit that does not read it has the room
    other = replace(reference, beside=False)
    for _ in range(2):
        read(other, range(6))
    assert not any(isinstance(key[1], tuple) for key in stream_module._CACHE.kept)
    clear_cache()


def test_a_smaller_budget_of_a_later_fit_is_kept_too(sets):
    read(ref(sets[0], 10**6), range(6))
    assert cached_bytes() == sets[0].dataset.decoded_bytes.sum()
    budget = int(sets[0].dataset.decoded_bytes[:3].sum())
    assert read(ref(sets[0], budget), range(6)) == truth(sets[0], range(6))
    assert {index for _, index in stream_module._CACHE.kept} == {0, 1, 2}


# -- buffers ---------------------------------------------------------------------------------------------


def addresses(reference, indices):
    return [part.x[-1].ctypes.data for _, part in stream(reference, indices, Ledger())]


def test_buffers_are_reused_by_turns(sets):
    largest_first = sorted(range(6), key=lambda i: -sets[1].dataset.decoded_bytes[i])[:5]
    first = addresses(ref(sets[1]), [largest_first[0]] * 2 + largest_first)
    assert len(set(first)) == 2
    assert set(addresses(ref(sets[1]), largest_first)) == set(first)


def test_kept_partitions_are_in_nobodys_buffer(sets):
    read(ref(sets[0], 10**6), range(6))
    kept = {i: flat(p) for (_, i), p in stream_module._CACHE.kept.items()}
    read(ref(sets[1]), range(6))
    read(ref(sets[2]), range(6))
    assert {i: flat(p) for (_, i), p in stream_module._CACHE.kept.items()} == kept
    assert kept == dict(truth(sets[0], range(6)))


@pytest.mark.parametrize("prefetch", [True, False])
def test_a_stream_within_a_stream(sets, prefetch):
    read(ref(sets[2]), range(6))  # this thread has buffers already
    found = []
    for index, part in stream(ref(sets[1], 0, prefetch), range(6), Ledger()):
        inner = read(ref(sets[0], 0, prefetch), range(6))
        assert inner == truth(sets[0], range(6))
        found.append((index, flat(part)))
    assert found == truth(sets[1], range(6))


def test_threads_have_their_own_buffers(sets):
    wrong = []

    def work(which):
        for _ in range(20):
            if read(ref(sets[which], 12_000), range(6)) != truth(sets[which], range(6)):
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 0, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert cached_bytes() == kept_bytes() <= 12_000


# -- accounting ------------------------------------------------------------------------------------------


@examples(60)
@given(st.lists(st.integers(0, 5), max_size=12), st.integers(0, 30_000), st.booleans())
def test_every_stored_byte_is_counted_once(sets, indices, budget, prefetch):
    clear_cache()
    stored = sets[0].dataset.stored_bytes
    stats = Ledger()
    read(ref(sets[0], budget, prefetch), indices, stats)
    assert stats.bytes_read + stats.cached_bytes == sum(int(stored[i]) for i in indices)
    assert stats.wait_seconds >= 0
    again = Ledger()
    read(ref(sets[0], budget, prefetch), range(6), again)
    kept = {index for _, index in stream_module._CACHE.kept}
    assert again.bytes_read >= sum(int(stored[i]) for i in range(6) if i not in kept)
    if not budget:
        assert (stats.cached_bytes, again.cached_bytes) == (0, 0)


def test_a_second_pass_is_read_from_the_cache(sets):
    total = int(sets[0].dataset.stored_bytes.sum())
    first, second = Ledger(), Ledger()
    read(ref(sets[0], 10**6), range(6), first)
    read(ref(sets[0], 10**6), range(6), second)
    assert (first.bytes_read, first.cached_bytes) == (total, 0)
    assert (second.bytes_read, second.cached_bytes) == (0, total)
    both = first.merge(second)
    assert (both.bytes_read, both.cached_bytes) == (total, total)
    assert both.wait_seconds == first.wait_seconds + second.wait_seconds


# -- failures --------------------------------------------------------------------------------------------


@pytest.fixture
def broken(small_dense, tmp_path):
    """A dataset whose partition 2 has lost a chunk."""
    written = small_dense(tmp_path / "broken", rows=(6, 6, 6, 6))
    (partition_folder(written.path, 2) / "X" / "c" / "0" / "0").unlink()
    return written


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("cache_bytes", [0, 10**6])
def test_errors_of_the_reader_arrive_in_their_turn(broken, prefetch, cache_bytes):
    seen = []
    with pytest.raises(CorruptDataError, match="partition 2, array X: its chunk is missing"):
        seen.extend(i for i, _ in stream(ref(broken, cache_bytes, prefetch), range(4), Ledger()))
    assert seen == [0, 1]
    # the room that was claimed for the broken partition is free again
    assert cached_bytes() == kept_bytes() == bool(cache_bytes) * int(broken.dataset.decoded_bytes[:2].sum())
    assert read(ref(broken, cache_bytes, prefetch), [0, 3]) == truth(broken, [0, 3])


def test_an_abandoned_stream_leaves_no_thread(sets):
    for index, _ in stream(ref(sets[0]), range(6), Ledger()):
        if index == 2:
            break
    assert read(ref(sets[0]), [0, 1]) == truth(sets[0], [0, 1])
    assert not [t for t in threading.enumerate() if t.name.startswith("distls-read")]


def test_another_fingerprint_is_refused(sets):
    reference = replace(ref(sets[0]), fingerprint="0123456789abcdef")
    assert raised(MismatchError, lambda: next(stream(reference, [0], Ledger()))) == (
        f"{sets[0].path}: its fingerprint is {sets[0].dataset.fingerprint[:12]}, the job expects 0123456789ab; "
        "the data set was replaced, or this worker sees another file system"
    )
    assert open_ref(ref(sets[0])).fingerprint == sets[0].dataset.fingerprint


def test_a_replaced_dataset_is_opened_anew(small_csr, tmp_path):
    path = tmp_path / "d"
    old = small_csr(path, rows=(5, 5))
    assert read(ref(old), [0]) == truth(old, [0])
    shutil.rmtree(path)
    new = small_csr(path, rows=(5, 5), seed=9)
    assert read(ref(new), [0, 1]) == truth(new, [0, 1])
    assert np.array_equal(open_dataset(path).table.rows, [5, 5])


def test_the_metadata_is_opened_once_a_process(sets, monkeypatch):
    open_ref(ref(sets[0]))
    monkeypatch.setattr(stream_module, "open_dataset", lambda path: pytest.fail("opened again"))
    assert open_ref(ref(sets[0], 5, False)).path == sets[0].path


# -- column shards ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["csr", "dense"])
def sharded(request, small_csr, small_dense):
    written = {"csr": small_csr, "dense": small_dense}[request.param](rows=ROWS, weighted=True, seed=9)
    return add_columns(written.path), written


def columns_ref(dataset, cache_bytes=0, prefetch=True):
    return DatasetRef(str(dataset.path), dataset.fingerprint, cache_bytes, prefetch, dataset.columns.digest)


def read_shards(reference, indices, stats=None):
    return [
        (i, shard.first, [a.tobytes() for a in shard.x])
        for i, shard in stream_columns(reference, indices, stats or Ledger())
    ]


def true_shards(dataset, indices):
    return [(i, int(dataset.columns.first[i]), [a.tobytes() for a in dataset.columns.read(i).x]) for i in indices]


@pytest.mark.fast_cases(
    "csr-indices0-0-True", "csr-indices1-0-False", "csr-indices2-0-False", "csr-indices3-3000-True",
    "dense-indices0-3000-False", "dense-indices1-1000000000-True", "dense-indices2-1000000000-True",
    "dense-indices3-1000000000-False",
)  # fmt: skip
@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("cache_bytes", [0, 3_000, 10**9])
@pytest.mark.parametrize("indices", [[0, 1, 2, 3, 4, 5, 6, 7], [5, 0, 3], [], [4, 4, 1, 4]])
def test_the_right_shards_in_the_right_order(sharded, prefetch, cache_bytes, indices):
    dataset, _ = sharded
    for _ in range(3):
        found = read_shards(columns_ref(dataset, cache_bytes, prefetch), indices)
        assert found == true_shards(dataset, indices)
        assert cached_bytes() <= cache_bytes


def test_shards_and_partitions_share_one_budget_and_push_nobody_out(sharded):
    dataset, written = sharded
    shards, parts = dataset.columns, written.dataset
    budget = int(shards.decoded_bytes.sum() + parts.decoded_bytes[:2].sum())
    indices, stats = range(len(shards)), Ledger()
    read_shards(columns_ref(dataset, budget), indices, stats)
    assert (stats.bytes_read, stats.cached_bytes) == (shards.stored_bytes.sum(), 0)
    assert read(ref(written, budget), range(6)) == truth(written, range(6))
    assert shards.decoded_bytes.sum() < cached_bytes() <= budget
    again = Ledger()
    assert read_shards(columns_ref(dataset, budget), indices, again) == true_shards(dataset, indices)
    assert (again.bytes_read, again.cached_bytes) == (0, shards.stored_bytes.sum())


def test_shards_that_were_cut_anew_make_way_for_the_new_ones(sharded, tmp_path):
    dataset, _ = sharded
    path = shutil.copytree(dataset.path, tmp_path / "d")
    old = open_dataset(path)
    budget = int(old.columns.decoded_bytes.sum())
    read_shards(columns_ref(old, budget), range(8))
    new = add_columns(path, shard_size=int(old.columns.decoded_bytes.sum() // 20))
    assert len(new.columns) > 8
    for _ in range(2):
        found = read_shards(columns_ref(new, budget), range(len(new.columns)))
        assert found == true_shards(new, range(len(new.columns)))
    assert all(key[1][0] == new.columns.digest for key in stream_module._CACHE.kept)
    assert cached_bytes() > 0


def test_other_shards_than_the_job_began_with_are_refused(sharded, tmp_path):
    dataset, _ = sharded
    path = shutil.copytree(dataset.path, tmp_path / "d")
    old = columns_ref(open_dataset(path))
    with pytest.raises(MismatchError, match="the job expects column shards with digest abc, there are those with"):
        stream_columns(replace(old, columns="abc"), [0], Ledger())
    shutil.rmtree(path / "columns")
    stream_module._open.cache_clear()
    refuses(MismatchError, "there are none; they were replaced or removed", stream_columns, old, [0], Ledger())
    # a process that had opened the dataset before it had shards finds them
    add_columns(path)
    assert read_shards(old, [0]) == true_shards(dataset, [0])


def test_a_damaged_shard_is_named_and_leaves_no_claim(sharded, tmp_path):
    dataset, _ = sharded
    path = shutil.copytree(dataset.path, tmp_path / "d")
    shutil.rmtree(path / "columns" / "00000002")
    with pytest.raises(CorruptDataError, match=r"column shard 2, array .*: its chunk is missing; remove"):
        read_shards(columns_ref(open_dataset(path), 10**9), range(8))
    assert cached_bytes() == dataset.columns.decoded_bytes[:2].sum()
