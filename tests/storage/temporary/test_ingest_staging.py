import errno

import numpy as np
import pytest
from helpers import raised, refuses

from distls.storage.dataset.chunks import BufferPool
from distls.storage.errors import BadInputError, CorruptDataError, StorageError
from distls.storage.temporary.ingest_staging import Segment, StagingArea


@pytest.fixture
def staging(tmp_path):
    area = StagingArea(tmp_path / "d")
    area.create()
    return area


def table_of(*sizes):
    """Rows, words and values of each bucket, as the table of a chunk."""
    return np.concatenate([[[0, 0, 0]], np.cumsum(sizes, axis=0)]).astype(np.uint32)


def test_segments_come_back_in_order(staging):
    first, second = np.arange(10, dtype=np.uint32), np.arange(100, 106, dtype=np.uint32)
    facts = staging.write_chunk("a", table_of((1, 3, 1), (0, 0, 0), (2, 7, 4)), first, {"rows": 3})
    other = staging.write_chunk("b", table_of((1, 2, 1), (1, 1, 0), (1, 3, 1)), second, {"rows": 3})
    assert facts == {"rows": 3, "name": "a", "bytes": 16 + 4 * 20 + 40, "table": facts["table"]}
    assert facts == staging.finished_chunk("a")
    assert np.array_equal(staging.read_table(other), table_of((1, 2, 1), (1, 1, 0), (1, 3, 1)))
    segments = [Segment("a", 1, 3), Segment("b", 0, 2), Segment("a", 0, 1), Segment("b", 1, 1)]
    words, rows = staging.read_segments(segments, 7 + 3 + 3, BufferPool())
    assert words.tolist() == [3, 4, 5, 6, 7, 8, 9, 100, 101, 102, 0, 1, 2]
    assert rows.tolist() == [2, 2, 1, 0]


def test_a_chunk_without_its_sidecar_or_of_another_size_is_not_finished(staging):
    staging.write_chunk("a", table_of((1, 2, 1)), np.arange(2, dtype=np.uint32), {})
    path = staging.folder / "chunks" / "a.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert staging.finished_chunk("a") is None
    raised(CorruptDataError, staging.read_segments, [Segment("a", 0, 1)], 2, BufferPool())
    path.write_bytes(whole)
    assert staging.finished_chunk("a") is not None
    path.with_suffix(".json").unlink()
    assert staging.finished_chunk("a") is None
    path.write_bytes(b"something else" * 9)
    refuses(CorruptDataError, "not a staged chunk", staging.read_segments, [Segment("a", 0, 1)], 2, BufferPool())


def test_a_segment_of_unexpected_size_is_refused(staging):
    staging.write_chunk("a", table_of((1, 2, 1)), np.arange(2, dtype=np.uint32), {})
    for expected in (1, 3):
        raised(CorruptDataError, staging.read_segments, [Segment("a", 0, 1)], expected, BufferPool())


def test_a_failed_write_leaves_nothing(staging, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    raised(OSError, staging.write_chunk, "a", table_of((1, 2, 1)), np.arange(2, dtype=np.uint32), {})
    assert list((staging.folder / "chunks").iterdir()) == []


def test_an_item_counts_as_finished_while_its_chunks_are_there(staging):
    facts = staging.write_chunk("000001-0000", table_of((1, 2, 1)), np.arange(2, dtype=np.uint32), {})
    staging.write_item(1, {"lines": 4, "chunks": [facts]})
    assert staging.read_item(1) == {"lines": 4, "chunks": [facts]}
    assert staging.read_item(2) is None
    (staging.folder / "chunks" / "000001-0000.bin").unlink()
    assert staging.read_item(1) is None


def test_documents_arrays_and_records(staging):
    assert staging.read_document("plan") is None
    assert staging.read_record("part0", 3) is None
    assert not staging.has_array("idf")
    staging.write_document("plan", {"a": [1]})
    staging.write_record("part0", 3, {"b": 2.5})
    staging.write_array("idf", np.arange(3.0))
    assert staging.read_document("plan") == {"a": [1]}
    assert staging.read_record("part0", 3) == {"b": 2.5}
    assert staging.read_array("idf").tolist() == [0, 1, 2]
    staging.remove()
    assert not staging.folder.exists()


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EACCES, "permission denied"),
        (errno.EROFS, "the file system is read-only"),
    ],
)
def test_the_guard_says_what_happened_and_what_to_do(staging, code, cause):
    with pytest.raises(StorageError) as caught, staging.guard():
        raise OSError(code, "x", "/some/file")
    assert str(caught.value) == (
        f"{staging.dataset}: the ingest stopped: {cause} (/some/file); the output is incomplete: "
        f"run the same ingest again to resume it, or remove {staging.dataset}"
    )
    with pytest.raises(BadInputError), staging.guard():
        raise BadInputError("as it is")
    with pytest.raises(StorageError, match="as it is"), staging.guard():
        raise StorageError("as it is")
