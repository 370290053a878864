"""Opening and publishing: nothing half-written, changed or foreign opens, and one line says why."""

import json
import shutil
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from helpers import examples, raised, refuses
from hypothesis import given
from hypothesis import strategies as st

from distls.storage.dataset import dataset as dataset_module
from distls.storage.dataset.chunks import BufferPool, write_array
from distls.storage.dataset.dataset import STAGING, is_dataset, open_dataset, publish
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.dataset.partitions import write_partition
from distls.storage.errors import CorruptDataError, DistlsError, FormatError, IncompleteError
from distls.storage.rows import DenseRows, Partition


def metadata(path):
    return json.loads((path / "zarr.json").read_text())


def store(path, **changes):
    """Change the stored metadata; None removes a field."""
    content = metadata(path)
    attributes = content["attributes"]["distls"] | changes
    content["attributes"]["distls"] = {name: value for name, value in attributes.items() if value is not ...}
    (path / "zarr.json").write_text(json.dumps(content))


def refusal(path, error):
    return raised(error, open_dataset, path)


@pytest.mark.fast_cases("csr-class", "dense-none")
@pytest.mark.parametrize("target", ["class", "multilabel", "continuous", "none"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_opened_is_what_was_published(small_csr, small_dense, layout, target):
    make = {"csr": small_csr, "dense": small_dense}[layout]
    written = make(rows=(5, 0, 3), target=target, weighted=True, features={"idf": np.arange(37.0)})
    opened = open_dataset(str(written.path))
    assert opened.meta == written.dataset.meta
    assert opened.fingerprint == written.dataset.fingerprint
    assert opened.table.to_arrays().keys() == written.dataset.table.to_arrays().keys()
    assert opened.features()["idf"].tolist() == list(range(37))
    assert len(opened) == 3
    assert opened.meta.n_rows == 8
    assert is_dataset(written.path)
    for index in (-1, 3):
        refuses(IndexError, f"partition {index} of 3", opened.read, index)


def test_counts_are_sums_over_the_partitions(small_csr):
    written = small_csr(rows=(50, 0, 31), weighted=True)
    meta, parts = written.dataset.meta, written.partitions
    y = np.concatenate([p.y for p in parts])
    weight = np.concatenate([p.sample_weight for p in parts])
    assert meta.label_counts == np.bincount(y, minlength=3).tolist()
    assert meta.label_weights == np.bincount(y, weight, minlength=3).tolist()
    assert meta.weight_sum == weight.sum()
    assert meta.nnz == sum(len(p.x.data) for p in parts)
    assert meta.mean_square_norm == sum(float((p.x.data**2).sum()) for p in parts) / 81


def test_a_dataset_without_rows_opens(tmp_path):
    meta = DatasetMeta(0, 3, 0, "csr", "float32", "none")
    assert len(publish(tmp_path / "d", meta, [], {})) == 0 == len(open_dataset(tmp_path / "d"))
    assert open_dataset(tmp_path / "d").decoded_bytes.tolist() == []


# -- what is not a dataset -------------------------------------------------------------------------------


def test_what_is_not_a_dataset(tmp_path):
    file = tmp_path / "rows.svm"
    file.write_text("1 1:2\n")
    (tmp_path / "folder").mkdir()
    missing = f"{tmp_path}/missing"
    assert refusal(missing, FormatError) == f"{missing}: no such data set"
    assert refusal(tmp_path / "folder", FormatError) == f"{tmp_path}/folder: not a distls data set (no zarr.json)"
    assert refusal(file, FormatError) == (
        f"{file}: a file, not a distls data set; ingest it first, or let `distls train` do both"
    )
    assert not any(map(is_dataset, (tmp_path / "missing", tmp_path / "folder", file)))


FOREIGN = ["", "{", "[]", "null", "3", "{}", '{"attributes": {}}', '{"attributes": {"distls": 5}}']
FOREIGN += [
    '{"attributes": null}', '{"attributes": {"distls": NaN}}', "\udcff", '{"attributes": {"other": {}}}',
]  # fmt: skip


@pytest.mark.fast_cases("$", "3", '\\{"attributes": \\{"distls": 5\\}\\}', '\\{"attributes": \\{"other"')
@pytest.mark.parametrize("content", FOREIGN)
def test_other_zarr_groups(tmp_path, content):
    (tmp_path / "zarr.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    message = f"{tmp_path}: not a distls data set (zarr.json has no distls metadata)"
    assert refusal(tmp_path, FormatError) == message


def test_no_permission(small_csr, monkeypatch):
    path = small_csr().path

    def refuse(path, kind, within):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(dataset_module, "read_json", refuse)  # the tests may run as root
    assert refusal(path, FormatError) == f"{path}: permission denied"


def test_metadata_that_cannot_be_read(tmp_path):
    (tmp_path / "zarr.json").mkdir()
    assert refusal(tmp_path, FormatError) == f"{tmp_path}: zarr.json cannot be read (Is a directory)"


@pytest.mark.parametrize("version", [0, 2, "1", ..., [1]])
def test_another_format_version(small_csr, version):
    path = small_csr().path
    store(path, format_version=version)
    shown = None if version is ... else version
    assert refusal(path, FormatError) == f"{path}: dataset format version {shown}, this distls reads version 1"


# -- half-written ----------------------------------------------------------------------------------------

UNFINISHED = "an ingest into it did not finish; run the same ingest again to resume it, or remove it"


def failing(monkeypatch, name, times=0):
    """Make a step of `publish` fail, as on a full disk, after it has worked `times` times."""
    real, calls = getattr(dataset_module, name), []

    def step(*args, **kwargs):
        calls.append(args)
        if len(calls) > times:
            raise OSError(28, "No space left on device")
        return real(*args, **kwargs)

    monkeypatch.setattr(dataset_module, name, step)


def parts(root, values=3.0):
    partition = Partition(DenseRows(np.full((4, 2), values, np.float32)), np.array([0, 1, 0, 1], np.int32))
    meta = DatasetMeta(0, 2, 0, "dense", "float32", "class", classes=[7, 9])
    return meta, [write_partition(root, i, partition, 2, 2, {}) for i in range(2)]


@pytest.mark.fast_cases("True-with_counts", "False-with_counts", "False-write_json")
@pytest.mark.parametrize(
    ("step", "times"), [("with_counts", 0), ("write_arrays", 0), ("write_arrays", 1), ("write_json", 0)]
)
@pytest.mark.parametrize("staged", [True, False])
def test_a_publication_that_fails_anywhere_does_not_open(tmp_path, monkeypatch, step, times, staged):
    root = tmp_path / "d"
    meta, records = parts(root)
    if staged:
        (root / STAGING).mkdir()
    with monkeypatch.context() as patch:
        failing(patch, step, times)
        refuses(OSError, "No space left", publish, root, meta, records, {"idf": np.ones(2)})
    other = "writing it did not finish; run the same ingest again, or remove it and generate it again"
    assert refusal(root, IncompleteError) == f"{root}: {UNFINISHED if staged else other}"
    assert not is_dataset(root)
    again = publish(root, meta, records, {"idf": np.ones(2)})
    assert open_dataset(root).fingerprint == again.fingerprint
    assert not (root / STAGING).exists()


def test_metadata_comes_last(tmp_path, monkeypatch):
    root = tmp_path / "d"
    meta, records = parts(root)
    (root / STAGING).mkdir()
    write_json, seen = dataset_module.write_json, []

    def spy(path, value):
        seen.append((path.relative_to(root).as_posix(), sorted(p.name for p in root.iterdir())))
        write_json(path, value)
        if path.parent == root:
            assert open_dataset(root).read(1).y.tolist() == [0, 1, 0, 1]  # whole from this moment on

    monkeypatch.setattr(dataset_module, "write_json", spy)
    publish(root, meta, records, {"idf": np.ones(2)})
    there = [STAGING, "features", "partitions", "rows"]
    assert seen == [("rows/zarr.json", there), ("zarr.json", there)]


def test_only_all_partitions_can_be_published(tmp_path):
    meta, records = parts(tmp_path / "d")
    assert publish(tmp_path / "d", meta, records[::-1], {}).meta.n_rows == 8
    shutil.rmtree(tmp_path / "d")
    for some in (records[1:], [records[0], records[0]], [records[0], replace(records[1], index=2)]):
        said = raised(IncompleteError, publish, tmp_path / "d", meta, some, {})
        assert said == f"{tmp_path / 'd'}: partitions are missing; run the same ingest again"
    assert not (tmp_path / "d").exists()


def test_features_of_an_earlier_attempt_do_not_stay(tmp_path):
    meta, records = parts(tmp_path / "d")
    publish(tmp_path / "d", meta, records, {"idf": np.ones(2)})
    publish(tmp_path / "d", meta, records, {})
    assert open_dataset(tmp_path / "d").features() == {}


# -- changed metadata ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def original(small_csr):
    return small_csr(rows=(5, 4), weighted=True, features={"idf": np.arange(37.0)})


@pytest.fixture
def copied(original, tmp_path):
    return shutil.copytree(original.path, tmp_path / "copy")


FIELDS = [
    "n_rows", "nnz", "layout", "dtype", "target", "classes", "label_counts", "label_weights", "n_targets",
]  # fmt: skip
FIELDS += ["weighted", "weight_sum", "mean_square_norm", "transforms", "transforms_digest", "zero_based"]
FIELDS += ["n_features", "shuffle_seed", "source", "codecs"]
VALUES = [0, 1, 9, -1, 2**62, 2**70, 1.5, 0.0, "", "csr", "dense", "float64", "continuous", "none", True, False]
VALUES += [None, [], {}, [1, 2, 3], ["z", "é", "a"], ["a", "a", "z"], [[]], {"data": "zstd"}, {"data": 3}, {"x": []}]


@pytest.mark.fast_cases("n_rows", "target", "weighted", "zero_based", "codecs")
@pytest.mark.parametrize("field", FIELDS)
def test_no_changed_field_opens(copied, original, field):
    before = metadata(copied)["attributes"]["distls"][field]
    for value in VALUES:
        if json.dumps(value) != json.dumps(before):
            store(copied, **{field: value})
            refusal(copied, (FormatError, CorruptDataError))
    store(copied, **{field: before})
    assert open_dataset(copied).fingerprint == original.dataset.fingerprint


@pytest.mark.fast_cases("n_rows", "target", "weighted", "zero_based", "codecs")
@pytest.mark.parametrize("field", FIELDS)
def test_fewer_fields(copied, field):
    store(copied, **{field: ...})
    assert refusal(copied, FormatError) == f"{copied}: not metadata of format version 1 (no {field})"


def test_more_fields(copied):
    store(copied, colour="red", n_rows=...)
    message = f"{copied}: not metadata of format version 1 (no n_rows, unknown colour)"
    assert refusal(copied, FormatError) == message


@pytest.mark.parametrize("torn", [{}, {"rows": np.zeros(3, np.int64)}], ids=["nothing", "one array"])
def test_a_table_that_is_listed_incompletely_is_read_again(copied, monkeypatch, caplog, torn):
    """Fault: A table of partitions of which only a part is listed or read | the opening of a data set | a note: it
    is read again"""
    expected, remaining = open_dataset(copied), [torn]
    read = dataset_module.read_arrays
    monkeypatch.setattr(dataset_module, "read_arrays", lambda *a: remaining.pop() if remaining else read(*a))
    with caplog.at_level("WARNING", "distls"):
        assert open_dataset(copied).fingerprint == expected.fingerprint
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"{copied}: read again, and well, after: ")


def test_a_forgotten_or_foreign_fingerprint(copied):
    message = (
        f"{copied}: metadata and fingerprint do not match; keep it, check the disk or the store and copy it again; "
        "if no copy is whole, ingest the data set again"
    )
    for fingerprint in (..., "", "0" * 64, 5, None):
        store(copied, fingerprint=fingerprint)
        assert refusal(copied, CorruptDataError) == message


@examples(300)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans(), file=st.integers(0, 100))
def test_any_flipped_or_cut_byte_of_metadata_and_table(original, place, bit, cut, file):
    root = original.path
    files = [root / "zarr.json", *sorted(p for p in (root / "partitions").rglob("*") if p.is_file())]
    path = files[file % len(files)] if file >= 25 else files[0]
    content = path.read_bytes()
    position = int(place * len(content))
    changed = bytearray(content)
    changed[position] ^= 1 << bit
    try:
        path.write_bytes(content[:position] if cut else changed)
        opened = opened_or_refused(root)
    finally:
        path.write_bytes(content)
    if opened is not None:  # a space, or something that only zarr looks at
        assert path.name == "zarr.json"
        assert (opened.meta, opened.fingerprint) == (original.dataset.meta, original.dataset.fingerprint)
        assert opened.read(0, BufferPool()).y.tolist() == original.partitions[0].y.tolist()


def opened_or_refused(path):
    try:
        return open_dataset(path)
    except DistlsError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return None


def test_missing_or_extra_parts_of_the_table(copied):
    for path in sorted(path for path in (copied / "partitions").iterdir() if path.is_dir()):
        kept = copied / "kept"
        path.rename(kept)
        assert "the partition table cannot be read" in refusal(copied, CorruptDataError)
        kept.rename(path)
    chunk = copied / "partitions" / "rows" / "c" / "0"
    content = chunk.read_bytes()
    chunk.unlink()  # zarr would read zeros
    assert "the partition table cannot be read ([Errno 2]" in refusal(copied, CorruptDataError)
    chunk.write_bytes(content)
    write_array(copied / "partitions" / "extra", np.zeros(2, np.int64), "none")
    assert "unknown arrays ['extra']" in refusal(copied, CorruptDataError)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_rows": 10},
        {"nnz": 2**50},
        {"weighted": False},
        {"layout": "dense", "n_features": 0, "nnz": 0},
        {"target": "none", "classes": [], "label_counts": [], "label_weights": []},
    ],
)
def test_a_table_that_does_not_fit_is_refused_even_with_a_right_fingerprint(copied, original, changes):
    attributes = {**metadata(copied)["attributes"]["distls"], **changes}
    if "n_rows" in changes:
        attributes["label_counts"] = [10, 0, 0]
    attributes.pop("fingerprint")
    meta = DatasetMeta.from_json(attributes, "here")
    store(copied, **attributes, fingerprint=dataset_module.fingerprint_of(meta, original.dataset.table))
    message = f"{copied}: the partition table does not fit the metadata; ingest the data set again"
    assert refusal(copied, CorruptDataError) == message


def test_sizes_beyond_reason_are_refused(copied, original):
    table = original.dataset.table
    rows = table.rows + np.array([2**45, 0])
    meta = msgspec.structs.replace(original.dataset.meta, n_rows=int(rows.sum()), label_counts=[int(rows.sum()), 0, 0])
    with pytest.raises(CorruptDataError, match="does not fit the metadata"):
        dataset_module.check_table(meta, replace(table, counts=rows), "here")
    fitting = msgspec.structs.replace(original.dataset.meta, n_rows=9)
    dataset_module.check_table(fitting, table, "here")
