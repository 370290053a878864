"""`generate`: the written data sets. What the rows are is tested in tests/workers/synthetic/test_synthetic_data.py."""

import numpy as np
import pytest
from helpers import raised, refuses

from distls import fit, generate, open_dataset
from distls.execution.serial import SerialExecutor
from distls.storage.errors import MismatchError, ParameterError, StorageError
from distls.storage.rows import DenseRows
from distls.workers.synthetic.kinds import KINDS, generate_rows


def _dense(dataset):
    parts = [dataset.read(index) for index in range(len(dataset))]
    assert all(isinstance(part.x, DenseRows) for part in parts)
    return np.concatenate([part.x.values for part in parts]), np.concatenate([part.y for part in parts])


def _files(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


class Backwards(SerialExecutor):
    """Another schedule."""

    def map(self, function, items, *, shared=None):
        results = {item: function(shared, item) for item in reversed(items)}
        return iter([results[item] for item in items])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return generate("dense", tmp_path_factory.mktemp("made") / "d", rows=3000, partition_size=2**20, compress="none")


def test_what_is_written(made):
    train, test = made
    kind = KINDS["dense"]
    assert (train.meta.n_rows, test.meta.n_rows) == (3000, kind.n_test)
    assert test.path == train.path.with_name("d-test")
    for dataset in made:
        meta = open_dataset(dataset.path).meta
        assert (meta.n_features, meta.classes) == (kind.n_features, list(range(kind.n_classes)))
        assert sum(meta.label_counts) == meta.n_rows
        assert dataset.decoded_bytes.max() <= 1.1 * 2**20
    assert train.meta.source == {"format": "generated", "kind": "dense", "part": "train", "seed": 0}


def test_same_seed_same_bits_whatever_runs_it(made, tmp_path):
    options = {"rows": 3000, "partition_size": 2**20, "compress": "none"}
    again = generate("dense", tmp_path / "d", executor=Backwards(), **options)
    for one, other in zip(made, again, strict=True):
        assert one.fingerprint == other.fingerprint
        assert _files(one.path) == _files(other.path)
    other_seed = generate("dense", tmp_path / "e", seed=1, **options)
    assert other_seed[0].fingerprint != made[0].fingerprint
    assert other_seed[1].fingerprint != made[1].fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("partition_size", [2**17, 2**22])
def test_fewer_rows_are_a_prefix_in_partitions_of_any_size(made, tmp_path, partition_size):
    fewer, test = generate("dense", tmp_path / "d", rows=700, partition_size=partition_size, compress="none")
    x, y = _dense(made[0])
    part_x, part_y = _dense(fewer)
    assert np.array_equal(part_x, x[:700])
    assert np.array_equal(part_y, y[:700])
    assert test.meta.label_counts == made[1].meta.label_counts


@pytest.mark.slow
def test_sparse_kinds_and_progress(tmp_path):
    calls = []
    train, _ = generate("rcv1-53", tmp_path / "t", rows=500, progress=lambda *call: calls.append(call))
    assert (train.meta.layout, len(train.meta.classes), train.meta.n_features) == ("csr", 53, 47_236)
    assert train.meta.mean_square_norm == pytest.approx(1.0, abs=1e-5)
    assert calls[0] == (1, 1, "generating t")
    assert {what for _, _, what in calls} == {"generating t", "generating t-test"}
    assert calls[-1][0] == calls[-1][1]


@pytest.mark.slow
def test_regression_kinds_have_continuous_targets(tmp_path):
    train, test = generate("csgd-wide", tmp_path / "r", rows=700, executor=Backwards())
    assert (train.meta.target, train.meta.n_targets, train.meta.classes) == ("continuous", 1, [])
    assert (test.meta.n_rows, test.meta.n_features) == (5_000, 5_000)
    assert [train.read(index).y.shape for index in range(len(train))] == [(512, 1), (188, 1)]
    x, y = generate_rows("csgd-wide", 0, "train", 0, 700)
    stored_x, stored_y = _dense(train)
    assert np.array_equal(stored_x, x.values)
    assert np.array_equal(stored_y, y)
    refuses(MismatchError, "has continuous targets; this method needs class targets", fit, "mcid", train)


@pytest.mark.slow_cases("odp")
@pytest.mark.parametrize("kind", ["rcv1-4", "odp"])
def test_partitions_of_sparse_kinds_are_of_the_asked_size(tmp_path, kind):
    train, _ = generate(kind, tmp_path / "d", rows=3 * 8192, partition_size=9 * 2**20)
    assert 4 * 2**20 < train.decoded_bytes.max() < 10 * 2**20


def test_what_is_there_is_not_touched(tmp_path):
    (tmp_path / "d-test").mkdir()
    said = raised(MismatchError, generate, "dense", tmp_path / "d", rows=10)
    assert said == f"{tmp_path}/d-test exists already; choose another name"
    assert not (tmp_path / "d").exists()


def test_refused(tmp_path):
    assert (
        raised(ParameterError, generate, "dens", tmp_path / "d")
        == "unknown kind 'dens': did you mean 'dense'? known kinds are rcv1-4, rcv1-53, dense, odp, csgd, "
        "csgd-wide, alpha, axis, delta, lshtc1"
    )
    refuses(ParameterError, r"--rows 0: at least one row is needed", generate, "dense", tmp_path / "d", rows=0)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_and_leaves_nothing_that_opens(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("distls.synthetic.generation.write_partition", full)
    assert raised(StorageError, generate, "dense", tmp_path / "d", rows=10) == (
        f"cannot write {tmp_path}/d: the disk is full; {tmp_path}/d is incomplete: make room, remove it and "
        "generate again"
    )
    refuses(Exception, r"not a distls data set|did not finish", open_dataset, tmp_path / "d")
