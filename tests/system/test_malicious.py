"""Files made to do harm: each is refused with one line and exit code 1, in little memory, and nothing of it is run.

A table of attacks: what is changed in a good dataset, model, run or source, and the commands that are tried on it.
Checksums and fingerprints are made right again, as whoever wishes harm would.
"""

import io
import json
import os
import pickle
import shutil
import tracemalloc
import zipfile
from unittest import mock

import google_crc32c
import h5py
import msgspec
import numpy as np
import pytest
from helpers import Exploit, distls, examples, labelled_rows, printed, raised, write_dataset
from hypothesis import given
from hypothesis import strategies as st

from distls import DistlsError, add_columns, fit, resume
from distls.execution.serial import SerialExecutor
from distls.solvers.status import Status
from distls.storage.dataset.chunks import read_arrays, write_array, write_arrays
from distls.storage.dataset.column_shards import open_columns
from distls.storage.dataset.dataset import open_dataset, publish
from distls.storage.dataset.metadata import digest_of
from distls.storage.dataset.partitions import write_partition
from distls.storage.filesystem.atomic import canonical_json
from distls.storage.model.bundle import read_bundle, write_bundle
from distls.storage.model.model import load_model, weights_sha256
from distls.testing.solvers import StopAfter, interrupted
from distls.workers.rounds.block_stream import clear_cache

SERIAL = ("--executor", "serial", "--quiet")
LITTLE = 96 * 2**20
FEATURES, CLASSES = 30, 3


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """A dataset with column shards, a finished run, interrupted ones, and a source of rows."""
    root = tmp_path_factory.mktemp("originals")
    x, y = labelled_rows(80, FEATURES, CLASSES)
    add_columns(write_dataset(root / "data", x, y, partition_rows=40).path)
    fit("sgd", root / "data", root / "run", params={"eta0": 0.1, "lanes": 1}, passes=2)
    for method, params in (("sgd", {"eta0": 0.1, "lanes": 1}), ("fista", {})):
        options = {"params": params, "passes": 6, "callbacks": [StopAfter(2)], "checkpoint_seconds": 0}
        with interrupted():
            fit(method, root / "data", root / method, **options)
    np.save(root / "rows.npy", x.toarray())
    np.save(root / "labels.npy", y)
    return root


@pytest.fixture
def at(originals, tmp_path):
    """A copy of all that, to be spoilt; paths in configurations are those of the originals' dataset."""
    clear_cache()  # decoded partitions are kept by fingerprint, which a copy shares: its files would not be read
    shutil.copytree(originals, tmp_path / "all", symlinks=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("not to be read or changed")
    return tmp_path / "all"


def refused(*arguments):
    """Run a command that must be refused; return its only line."""
    tracemalloc.start()
    try:
        ended = distls(*arguments)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ended.code == 1, ended
    assert ended.err.startswith("distls: "), ended.err
    assert ended.err.count("\n") == 1, ended.err
    assert peak < LITTLE, f"{peak / 2**20:.0f} MiB"
    return ended.err.removeprefix("distls: ").rstrip("\n")


# -- ways to do harm -------------------------------------------------------------------------------------


def lead_out(path):
    """Move a file or folder out of its folder, and leave a link."""
    elsewhere = next(folder for folder in path.parents if folder.name == "all").parent / "elsewhere"
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)


def replace_by_pipe(path):
    path.unlink()
    os.mkfifo(path)


def hole(path):
    path.unlink()
    with path.open("wb") as file:
        file.truncate(2**40)


def deep(path):
    path.write_text("[" * 100_000 + "]" * 100_000)


def wide(path):
    path.write_text("[" + "[]," * 9_000_000 + "[]]")


def unpickled(path):
    path.write_bytes(pickle.dumps(Exploit(path.parents[3] / "executed")))


def meta_of(data):
    return json.loads((data / "zarr.json").read_text())


def forge(data, arrays=None, **changes):
    """Change the metadata and the partition table of a dataset, and make its fingerprint right."""
    document = meta_of(data)
    stored = document["attributes"]["distls"]
    stored.update(changes)
    stored.pop("fingerprint")
    table = {**read_arrays(data / "partitions", data), **(arrays or {})}
    write_arrays(data / "partitions", table)
    stored["fingerprint"] = digest_of(stored, dict(sorted(table.items())))
    (data / "zarr.json").write_text(json.dumps(document))


def forge_rows(data, **changes):
    """Store a first partition with other arrays, and make all checksums right."""
    opened = open_dataset(data)
    parts = [opened.read(i) for i in range(len(opened))]
    first = parts[0]._replace(x=parts[0].x._replace(**changes))
    n_features, k = opened.meta.n_features, len(opened.meta.classes)
    # what is measured on the way takes rows that are well formed
    with mock.patch("distls.storage.dataset.partitions.feature_moments", return_value={}):
        records = [write_partition(data, i, part, n_features, k, {}) for i, part in enumerate([first, *parts[1:]])]
    shutil.rmtree(data / "columns", ignore_errors=True)
    publish(data, msgspec.structs.replace(opened.meta, nnz=0), records, {})


def forge_bundle(folder, arrays=None, **attributes):
    """Change a model or checkpoint, checksums and all."""
    kind = "model" if folder.name in ("model", "best") else "checkpoint"
    found, own = read_bundle(folder, kind)
    own = {**own, **(arrays or {})}
    found.update(attributes)
    if kind == "model" and "weights_sha256" not in attributes:
        others = [own[name] for name in sorted(own) if name.startswith("recipe_")]
        found["weights_sha256"] = weights_sha256(own["weights"], own["intercept"], *others)
    write_bundle(folder, kind, found, own)


def redescribe(folder, change):
    """Change what bundle.json says of arrays, and give it a right checksum."""
    content = json.loads((folder / "bundle.json").read_text())
    del content["crc32c"]
    change(content)
    content["crc32c"] = google_crc32c.value(canonical_json(content).encode())
    (folder / "bundle.json").write_text(json.dumps(content))


def checkpoint(run):
    return max((run / "checkpoints").iterdir())


def forge_state(run, **scalars):
    folder = checkpoint(run)
    state = read_bundle(folder, "checkpoint")[0]["state"]
    forge_bundle(folder, state={**state, **scalars})


def forge_json(path, **changes):
    """Change members of a JSON file, which is without checksums as those of earlier versions."""
    members = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: members[name] for name in members.keys() - {"request", "crc32c"}}))


# -- datasets --------------------------------------------------------------------------------------------

ARRAY = "rows/00000000/data/c/0"


def far_columns(data):
    indices = open_dataset(data).read(0).x.indices.copy()
    indices[-1] = 65_000
    forge_rows(data, indices=indices)


def long_rows(data):
    """One row that has every value of the partition, more than there are columns: no kernel has room for it."""
    x = open_dataset(data).read(0).x
    indptr = np.full(len(x.indptr), len(x.data), np.int64)
    indptr[0] = 0
    forge_rows(data, indptr=indptr)


def offsets_that_jump(data):
    indptr = open_dataset(data).read(0).x.indptr.copy()
    indptr[3] = 2**62
    forge_rows(data, indptr=indptr)


def absurd_rows(data):
    table = read_arrays(data / "partitions", data)
    rows, n = table["rows"].copy(), 2**39
    rows[0] = n
    changed = {"rows": rows, "indptr.size": table["indptr.size"].copy(), "y.size": table["y.size"].copy()}
    changed["indptr.size"][0], changed["y.size"][0] = 8 * (n + 1) + 4, 4 * n + 4
    total = int(rows.sum())
    forge(data, changed, n_rows=total, label_counts=[total - 2, 1, 1])


def zstd_bomb(data):
    """Values that say they are as many as they should be, and are a thousand times more."""
    from numcodecs.zstd import Zstd

    n_bytes = int(open_dataset(data).table.nnz[0]) * 4
    frame = bytearray(Zstd(level=1).encode(np.zeros(64 * 2**20, np.uint8)))
    assert frame[4] >> 6 == 2  # four bytes of decoded size, in a frame of one segment
    at = 5 + (not frame[4] >> 5 & 1)
    frame[at : at + 4] = n_bytes.to_bytes(4, "little")
    checksum = google_crc32c.value(bytes(frame))
    (data / ARRAY).write_bytes(bytes(frame) + checksum.to_bytes(4, "little"))
    table = read_arrays(data / "partitions", data)
    sizes, sums = table["data.size"].copy(), table["data.crc32c"].copy()
    sizes[0], sums[0] = len(frame) + 4, checksum
    forge(data, {"data.size": sizes, "data.crc32c": sums}, codecs={"data": "zstd"})


def strange_table(data):
    write_array(data / "partitions" / "...secret.size", np.zeros(2, np.int64), "none")
    write_array(data / "partitions" / "...secret.crc32c", np.zeros(2, np.uint32), "none")
    forge(data)


def array_of(data, **changes):
    path = data / "partitions" / "rows" / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


DATASETS = {
    "column numbers": (far_columns, "array indices: column numbers out of range"),
    "long rows": (long_rows, "array indptr: row offsets are inconsistent"),
    "row offsets": (offsets_that_jump, "array indptr: row offsets are inconsistent"),
    "absurd rows": (absurd_rows, f"bytes on disk, {8 * (2**39 + 1) + 4} recorded"),
    "zstd bomb": (zstd_bomb, "array data: it does not decode"),
    "array names": (strange_table, "the partition table does not fit the metadata"),
    "objects": (lambda d: array_of(d, data_type="object"), "the partition table cannot be read"),
    "huge shape": (lambda d: array_of(d, shape=[2**60]), "the partition table cannot be read"),
    "other codecs": (lambda d: array_of(d, codecs=[{"name": "pickle"}]), "not an uncompressed array"),
    "transformers": (lambda d: array_of(d, storage_transformers=[{"name": "x"}]), "not an uncompressed array"),
    "link to metadata": (lambda d: lead_out(d / "zarr.json"), "a link leads out of"),
    "link to the table": (lambda d: lead_out(d / "partitions"), "a link leads out of"),
    "link to rows": (lambda d: lead_out(d / "rows"), "a link leads out of"),
    "link to a chunk": (lambda d: lead_out(d / ARRAY), "a link leads out of"),
    "pipe": (lambda d: replace_by_pipe(d / ARRAY), "not a regular file"),
    "hole": (lambda d: hole(d / "zarr.json"), "more than the 67108864 that such a file of distls has"),
    "deep": (lambda d: deep(d / "zarr.json"), "zarr.json has no distls metadata"),
    "wide": (lambda d: wide(d / "zarr.json"), "zarr.json has no distls metadata"),
    "huge number": (lambda d: forge(d, n_features=2**70), "metadata out of range"),
}  # fmt: skip


@pytest.mark.fast_cases("array names$", "huge shape$", "link to the table$", "pipe$", "zstd bomb$")
@pytest.mark.parametrize("attack", sorted(DATASETS))
def test_datasets(at, attack):
    """Fault: A malicious data set | metadata, table, chunks, links | one line, exit code 1; no model, no predictions"""
    change, message = DATASETS[attack]
    change(at / "data")
    # the plan of a fit knows before a chunk is looked at what terabytes are
    planned = "a worker needs 25.2 TiB" if attack == "absurd rows" else message
    assert planned in refused("fit", "mcid", at / "data", at / "new", *SERIAL)
    assert not (at / "new" / "model").exists()
    assert message in refused("evaluate", at / "run", at / "data", *SERIAL[:2])
    assert message in refused("predict", at / "run", at / "data", at / "out.csv", *SERIAL[:2])
    assert not (at / "out.csv").exists()


@pytest.mark.fast_cases("deep", "array")
@pytest.mark.parametrize("attack", ["deep", "hole", "link to the table", "huge shape", "array names"])
def test_datasets_are_described_no_better(at, attack):
    DATASETS[attack][0](at / "data")
    assert refused("info", at / "data").startswith(str(at / "data"))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sgd", "gls", "bcd", "sdca"])
def test_classes_without_rows_are_refused_before_weights_are_made(at, method):
    many = 2**17
    counts = [40, 40, *[0] * (many - 2)]
    forge(at / "data", classes=list(range(many)), label_counts=counts, label_weights=counts)
    tracemalloc.start()
    try:
        with pytest.raises(DistlsError, match="131,070 of its 131,072 classes have no row, and it has 80 rows"):
            fit(method, at / "data", at / "new", executor="serial")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # the metadata, as text and as numbers, are 126 bytes a class; one array of weights would be as much again
    assert peak < 160 * many
    assert not (at / "new").exists()


def test_a_lock_that_leads_elsewhere(at):
    secret = at.parent / "secret" / "file"
    (at / "data" / ".lock").symlink_to(secret)
    assert str(at / "data" / ".lock") in refused("columns", at / "data", "--shard-size", "1MiB", *SERIAL)
    assert secret.read_text() == "not to be read or changed"


def test_names_that_grow(at):
    meta = open_dataset(at / "data").meta
    names = {"name_bytes": np.full(2**16, 97, np.uint8), "name_ends": np.tile([0, 2**16], 2**15)}
    opened = open_dataset(at / "data")
    shutil.rmtree(at / "data" / "columns")
    records = [write_partition(at / "data", i, opened.read(i), FEATURES, CLASSES, {}) for i in range(2)]
    publish(at / "data", meta, records, names)
    assert "the names of the features cannot be read" in refused("info", at / "data")


# -- column shards ---------------------------------------------------------------------------------------


def far_rows(data):
    shard = open_columns(data, open_dataset(data).meta, open_dataset(data).fingerprint).read(0)
    indices = shard.x.indices.copy()
    indices[-1] = 60_000
    _, checksum = write_array(data / "columns/00000000/indices", indices, "none")
    table = read_arrays(data / "columns/shards", data)
    table["indices.crc32c"] = table["indices.crc32c"].copy()
    table["indices.crc32c"][0] = checksum
    write_arrays(data / "columns/shards", table)
    document = json.loads((data / "columns/zarr.json").read_text())
    own = document["attributes"]["distls_columns"]
    own.pop("digest")
    own["digest"] = digest_of(own, dict(sorted(table.items())))
    (data / "columns/zarr.json").write_text(json.dumps(document))


COLUMNS = {
    "row numbers": (far_rows, "array indices: row numbers out of range"),
    "link": (lambda d: lead_out(d / "columns"), "a link leads out of"),
    "link to a shard": (lambda d: lead_out(d / "columns/00000000"), "a link leads out of"),
    "pipe": (lambda d: replace_by_pipe(d / "columns/00000000/data/c/0"), "not a regular file"),
    "deep": (lambda d: deep(d / "columns/zarr.json"), "the column shards cannot be read"),
}


@pytest.mark.fast_cases("deep", "row")
@pytest.mark.parametrize("attack", sorted(COLUMNS))
def test_column_shards(at, attack):
    change, message = COLUMNS[attack]
    change(at / "data")
    said = raised(DistlsError, lambda: open_dataset(at / "data").columns.read(0))
    assert message in said


# -- models ----------------------------------------------------------------------------------------------

MODEL = "run/model"


def recipe(**changes):
    features = {
        "kind": "fourier", "size": 10, "seed": 0, "bandwidth": 1.0, "degree": 2, "n_features": FEATURES,
    }  # fmt: skip
    features |= {"expand": 0, "first_stage": 0, "n_stages": 3} | changes
    return {"n_features": FEATURES, "features": features}


def few_rows(model):
    weights = read_bundle(model, "model")[1]["weights"][:1]
    forge_bundle(model, {"weights": weights, "rows": np.zeros(1, np.int64)}, n_features=2**32)


def shape(value):
    def change(content):
        content["arrays"]["weights"]["shape"] = value

    return change


def named(content):
    content["arrays"]["../../../secret/file"] = content["arrays"].pop("weights")


MODELS = {
    "features": (few_rows, "weights of 4294967296 features take"),
    "shape": (lambda m: redescribe(m, shape([2**40, 2**20])), "its bytes do not match bundle.json"),
    "array names": (lambda m: redescribe(m, named), "illegal array name '../../../secret/file'"),
    "pickle": (lambda m: unpickled(m / "weights.npy"), "its bytes do not match bundle.json"),
    "pickle of all": (lambda m: unpickled(m / "bundle.json"), "bundle.json is not a model written by distls"),
    "link": (lambda m: lead_out(m / "weights.npy"), "a link leads out of"),
    "link to all": (lambda m: lead_out(m), "a link leads out of"),
    "pipe": (lambda m: replace_by_pipe(m / "weights.npy"), "not a regular file"),
    "pipe for all": (lambda m: replace_by_pipe(m / "bundle.json"), "not a regular file"),
    "deep": (lambda m: deep(m / "bundle.json"), "bundle.json is not a model written by distls"),
    "hole": (lambda m: hole(m / "bundle.json"), "more than the 67108864"),
    "loss": (lambda m: forge_bundle(m, loss="../x"), "loss '../x' of class targets"),
    "classes": (
        lambda m: forge_bundle(m, classes=[[1], {}, "a"]),
        "Expected `int | float | str`, got `array` - at `$.classes[0]`",
    ),
    "parameters": (lambda m: forge_bundle(m, params=[1]), "Expected `object`, got `array` - at `$.params`"),
    "width": (
        lambda m: forge_bundle(m, recipe={"n_features": "x"}),
        "its recipe: Expected `int`, got `str` - at `$.n_features`",
    ),
    "blocks": (lambda m: forge_bundle(m, recipe=recipe(n_stages=2**60)), "Expected `int` <= 65536 - at `$.n_stages`"),
    "degree": (lambda m: forge_bundle(m, recipe=recipe(degree=2**60)), "Expected `int` <= 65536 - at `$.degree`"),
    "too few weights": (lambda m: forge_bundle(m, recipe=recipe(size=1000)), "weights that do not fit the recipe"),
    "other rows": (lambda m: forge_bundle(m, recipe=recipe(n_features=7)), "weights that do not fit the recipe"),
    "calibration": (
        lambda m: forge_bundle(
            m, recipe={"n_features": FEATURES, "calibration": {"powers": [2**60], "onto": "x"}}
        ),
        "its recipe: Expected `int` <= 65536 - at `$.calibration.powers[0]`",
    ),
}  # fmt: skip


@pytest.mark.fast_cases("array", "degree", "loss", "pickle of", "width")
@pytest.mark.parametrize("attack", sorted(MODELS))
def test_models(at, attack):
    """Fault: A malicious model | bundle, arrays, recipe, links | one line, exit code 1"""
    change, message = MODELS[attack]
    change(at / MODEL)
    assert message in refused("evaluate", at / "run", at / "data", *SERIAL[:2])
    assert message in refused("predict", at / "run", at / "data", at / "out.csv", *SERIAL[:2])
    assert not (at / "out.csv").exists()
    assert not (at / "executed").exists()


def test_a_model_that_scores_with_good_recipes_is_not_refused(at):
    """The features of the table above are refused for what is changed in them."""
    weights = np.ones((30, CLASSES), np.float32)
    forge_bundle(at / MODEL, {"weights": weights}, recipe=recipe())
    assert printed("evaluate", at / "run", at / "data", *SERIAL[:2])


LIKE = {
    "idf": ({"transforms": [{"name": "idf"}]}, {"features_idf": np.ones(3)}, "fitted array idf of another shape"),
    "kept": (
        {"transforms": [{"name": "min_count", "columns": FEATURES, "kept": FEATURES}]},
        {"features_kept": np.arange(FEATURES) + 1000},
        "min_count keeps columns that are not there",
    ),
    "transforms": (
        {"transforms": [{"name": "os.system"}]},
        {},
        "transforms: Invalid value 'os.system' - at `$[0].name`",
    ),
    "source": (
        {"source": {"format": "text", "recipe": {"n_features": 2**60}}},
        {},
        "its source recipe: Expected `int` <= 4294967296 - at `$.n_features`",
    ),
    "table": (
        {"source": {"recipe": {"features": [1]}}},
        {},
        "its source recipe: Expected `object`, got `int` - at `$.features[0]`",
    ),
}  # fmt: skip


@pytest.mark.fast_cases("idf", "transforms")
@pytest.mark.parametrize("attack", sorted(LIKE))
def test_data_that_go_through_what_a_model_says(at, attack):
    attributes, arrays, message = LIKE[attack]
    forge_bundle(at / MODEL, arrays, **attributes)
    assert message in refused("predict", at / "run", at / "rows.npy", at / "out.csv", *SERIAL[:2])


# -- runs and checkpoints --------------------------------------------------------------------------------

OUT = "a link leads out of"
RUNS = {
    "events": (lambda r: lead_out(r / "events.jsonl"), OUT),
    "checkpoints": (lambda r: lead_out(r / "checkpoints"), OUT),
    "state": (lambda r: (r / "state").symlink_to(r.parent.parent / "secret"), OUT),
    "status": (lambda r: lead_out(r / "status.json"), OUT),
    "lock": (lambda r: (r / "lock").symlink_to(r.parent.parent / "secret" / "file"), OUT),
    "pipe": (lambda r: replace_by_pipe(r / "status.json"), "not a regular file"),
    "configuration": (lambda r: deep(r / "config.json"), "config.json cannot be read"),
    "method": (lambda r: forge_json(r / "config.json", method="os.system"), "not written by distls"),
    "grid": (lambda r: forge_json(r / "config.json", grid=[{"alpha": "x"}]), "not written by distls"),
    "settings": (lambda r: forge_json(r / "config.json", grid=[{}]), "not written by distls"),
    "data": (lambda r: forge_json(r / "config.json", dataset="a\0b"), "config.json was not written by distls"),
    "seed": (
        lambda r: forge_json(r / "config.json", seed=[]),
        "config.json was not written by distls (Expected `int`, got `array` - at `$.seed`)",
    ),
    "passes": (lambda r: forge_json(r / "status.json", passes="9"), "status.json was not written by distls"),
    "checkpoint": (lambda r: unpickled(checkpoint(r) / "bundle.json"), "bundle.json is not a checkpoint"),
    "array": (lambda r: unpickled(next(checkpoint(r).glob("*.npy"))), "its bytes do not match bundle.json"),
    "names": (lambda r: redescribe(checkpoint(r), lambda c: c["arrays"].update({"../x": {}})), "illegal array name"),
    "field": (lambda r: forge_state(r, __class__="x"), "not written by distls"),
    "progress": (lambda r: forge_bundle(checkpoint(r), progress=3), "not written by distls"),
    "request": (lambda r: forge_json(r / "config.json", seed=7), "config.json was changed"),
}  # fmt: skip


@pytest.mark.fast_cases("array", "data", "method", "request", "status")
@pytest.mark.parametrize("attack", sorted(RUNS))
def test_runs(at, attack):
    """Fault: A malicious run or checkpoint | configuration, status, state, links, lock | one line, exit code 1;
    nothing written through a link"""
    change, message = RUNS[attack]
    secret = (at.parent / "secret" / "file").read_text()
    change(at / "sgd")
    elsewhere = at.parent / "elsewhere"
    before = elsewhere.read_bytes() if elsewhere.is_file() else sorted(elsewhere.glob("*"))
    assert message in refused("resume", at / "sgd", *SERIAL)
    # nothing was written through a link
    assert before == (elsewhere.read_bytes() if elsewhere.is_file() else sorted(elsewhere.glob("*")))
    assert (at.parent / "secret" / "file").read_text() == secret
    assert not (at / "executed").exists()


@pytest.mark.fast_cases("sgd")
@pytest.mark.parametrize("method", ["fista", "sgd"])
def test_untouched_runs_go_on(at, method):
    assert resume(at / method).status == Status.MAX_PASSES


@pytest.mark.fast_cases("changes0")
@pytest.mark.parametrize("changes", [{"method": 3}, {"grid": []}, {"grid": [{"alpha": {"a": []}}]}, {"dataset": 5}])
def test_runs_are_not_shown(at, changes):
    forge_json(at / "run" / "config.json", **changes)
    forge_json(at / "run" / "status.json", selected=[])
    for command in ("info", "report"):
        ended = distls(command, at / "run")
        assert ended.code in (0, 1)
        assert ended.err.count("\n") == ended.code


def test_events_and_status_that_make_no_sense(at):
    (at / "run" / "events.jsonl").write_text('{"round": {}}\n[3]\n')
    assert "not the events of a run (Expected `object`, got `array`)" in refused("report", at / "run")
    (at / "run" / "events.jsonl").write_text('{"round": {}}\n{"passes": 1}\n')
    assert "not written by distls" in refused("report", at / "run")
    (at / "run" / "events.jsonl").write_text("[" * 100_000 + "\n")
    assert "not the events of a run" in refused("report", at / "run")
    forge_json(at / "run" / "status.json", objective=[], children=[3])
    assert "not" in refused("report", at / "run")


def test_names_do_nothing_to_a_terminal(at):
    forge_bundle(at / MODEL, classes=["\x1b]0;owned\x07", "\x1b[2J", "c"])
    forge(at / "data", classes=["\x1b]0;owned\x07", "\x1b[2J", "c"])
    shown = printed("evaluate", at / "run", at / "data", *SERIAL[:2])
    assert "\x1b" not in shown
    assert "\\x1b[2J" in shown


# -- sources ---------------------------------------------------------------------------------------------


def npy_header(path, shape, dtype="<f4"):
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": dtype})
        file.write(bytes(64))


def npz(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            if isinstance(content, np.ndarray):
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, content, allow_pickle=True)
                content = buffer.getvalue()
            archive.writestr(f"{name}.npy", content)


def header(shape, dtype="<f4"):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"shape": shape, "fortran_order": False, "descr": dtype})
    return buffer.getvalue() + bytes(64)


def csr(n_rows=2, n_features=5, **changes):
    members = {"data": np.ones(2, np.float32), "indices": np.zeros(2, np.int32), "indptr": np.array([0, 1, 2])}
    return members | {"shape": np.array([n_rows, n_features]), "format": np.array("csr"), "y": np.arange(2)} | changes


def idx(path, sizes):
    path.write_bytes(bytes([0, 0, 8, len(sizes)]) + np.array(sizes, ">u4").tobytes() + bytes(64))


def pickled(path):
    return np.array([Exploit(path.parent / "executed"), 1], object)


SOURCES = {
    "npy rows": ("a.npy", lambda p: npy_header(p, (2**40, 10))),
    "npy columns": ("a.npy", lambda p: npy_header(p, (2, 2**60))),
    "npy negative": ("a.npy", lambda p: npy_header(p, (-2, 5))),
    "npy objects": ("a.npy", lambda p: np.save(p, pickled(p).reshape(1, 2), allow_pickle=True)),
    "npy code": ("a.npy", lambda p: p.write_bytes(b"\x93NUMPY\1\0\x20\0__import__('os').system('true')\n" + bytes(9))),
    "npz rows": ("a.npz", lambda p: npz(p, X=header((2**40, 10)), y=np.zeros(2))),
    "npz objects": ("a.npz", lambda p: npz(p, X=np.zeros((2, 3), np.float32), y=pickled(p))),
    "npz shape": ("a.npz", lambda p: npz(p, **csr(n_rows=2**45))),
    "npz shape of objects": ("a.npz", lambda p: npz(p, **csr(shape=pickled(p)))),
    "npz shape of many": ("a.npz", lambda p: npz(p, **csr(shape=np.zeros(2**22, np.int64)))),
    "npz offsets": ("a.npz", lambda p: npz(p, **csr(indptr=np.array([0, 2**60, 2**61])))),
    "npz columns": ("a.npz", lambda p: npz(p, **csr(indices=np.array([0, 2**31 - 1], np.int32)))),
    "npz labels": ("a.npz", lambda p: npz(p, **csr(y=header((2**45,), "<i8")))),
    "npz without a part": ("a.npz", lambda p: npz(p, **{k: v for k, v in csr().items() if k != "format"})),
    "idx": ("a.idx", lambda p: idx(p, [2**32 - 1] * 4)),
    "not a file": ("a.npy", os.mkfifo),
}  # fmt: skip


@pytest.mark.fast_cases("idx", "npy objects", "npz offsets", "npz without")
@pytest.mark.parametrize("attack", sorted(SOURCES))
def test_arrays_as_sources(tmp_path, attack):
    """Fault: A malicious source | npy, npz, IDX | one line, exit code 1; no output folder"""
    name, make = SOURCES[attack]
    make(tmp_path / name)
    np.save(tmp_path / "labels.npy", np.arange(2))
    options = [] if name.endswith("npz") else ["--labels", tmp_path / "labels.npy"]
    message = refused("ingest", tmp_path / name, tmp_path / "new", *options, *SERIAL)
    assert message.startswith(str(tmp_path / name))
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "new").exists()


def test_labels_that_are_no_labels(at):
    for make in (lambda p: npy_header(p, (2**45,), "<i8"), lambda p: np.save(p, pickled(p), allow_pickle=True)):
        (at / "bad.npy").unlink(missing_ok=True)
        make(at / "bad.npy")
        message = refused("ingest", at / "rows.npy", at / "new", "--labels", at / "bad.npy", *SERIAL)
        assert message.startswith(f"{at / 'bad.npy'}: not a readable label file")
        assert not (at / "executed").exists()


def anndata_hdf5(path, **changes):
    """An .h5ad of 4 rows, with some members changed: by name, a function of (file, name)."""
    with h5py.File(path, "w") as file:
        members = {
            "X": np.ones((4, 3), np.float32),
            "obs/_index": np.array([b"a", b"b", b"c", b"d"]),
            "obs/y": np.arange(4.0),
            "var/_index": np.array([b"u", b"v", b"w"]),
        }
        for name, values in members.items():
            changes.get(name, lambda f, n, v=values: f.create_dataset(n, data=v))(file, name)
        for group in ("obs", "var"):
            file[group].attrs["_index"] = "_index"
        file["obs"].attrs["column-order"] = ["y"]


def external(path):
    with h5py.File(path, "w") as file:
        file["X"] = np.ones((4, 3), np.float32)
    return h5py.ExternalLink(str(path), "X")


def link_to(target):
    def make(file, name):
        file[name] = target

    return make


def stored_elsewhere(path):
    def make(file, name):
        path.write_bytes(bytes(48))
        file.create_dataset(name, (4, 3), np.float32, external=[(str(path), 0, 48)])

    return make


def virtual(path):
    def make(file, name):
        layout = h5py.VirtualLayout((4, 3), np.float32)
        external(path)
        layout[:] = h5py.VirtualSource(str(path), "X", (4, 3))
        file.create_virtual_dataset(name, layout)

    return make


HDF5 = {
    "external link": ("X", lambda p: link_to(external(p / "other.h5")), "X is a link"),
    "link to a pipe": ("X", lambda p: link_to(h5py.ExternalLink(str(p / "pipe"), "X")), "X is a link"),
    "soft link": ("obs/y", lambda p: link_to(h5py.SoftLink("/X")), "y is a link"),
    "values elsewhere": ("X", lambda p: stored_elsewhere(p / "raw"), "X has its values in other files"),
    "virtual": ("X", lambda p: virtual(p / "other.h5"), "X has its values in other files"),
    "names": (
        "var/_index",
        lambda p: lambda f, n: f.create_dataset(n, (2**40,), "S1", chunks=(2**10,)),
        "chunks of /var/_index are missing",
    ),
}


@pytest.mark.fast_cases("external", "virtual")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("attack", sorted(HDF5))
def test_hdf5(tmp_path, attack):
    name, make, message = HDF5[attack]
    os.mkfifo(tmp_path / "pipe")
    anndata_hdf5(tmp_path / "a.h5ad", **{name: make(tmp_path)})
    found = refused("ingest", tmp_path / "a.h5ad", tmp_path / "new", "--label-column", "y", *SERIAL)
    assert message in found


def zarr_v2(path, name, codecs, payload, shape=(4,), dtype="|O"):
    array = path / name
    array.mkdir(parents=True)
    described = {
        "zarr_format": 2, "shape": shape, "chunks": shape, "dtype": dtype, "fill_value": "", "order": "C",
    }  # fmt: skip
    (array / ".zarray").write_text(json.dumps(described | codecs))
    (array / ".".join("0" * len(shape))).write_bytes(payload)


@pytest.mark.fast_cases("codecs0")
@pytest.mark.parametrize("codecs", [
    {"filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}], "compressor": None},
    {"filters": [{"id": "pickle", "protocol": 5}], "compressor": None},
    {"filters": [{"id": "vlen-utf8"}], "compressor": {"id": "pickle", "protocol": 5}},
])  # fmt: skip
def test_zarr_stores_with_codecs_that_unpickle(tmp_path, codecs):
    store = tmp_path / "a.zarr"
    (store / "obs").mkdir(parents=True)
    (store / "var").mkdir()
    for group, attributes in (
        ("", {}),
        ("obs", {"_index": "_index", "column-order": ["y"]}),
        ("var", {"_index": "_index"}),
    ):
        (store / group / ".zgroup").write_text('{"zarr_format": 2}')
        (store / group / ".zattrs").write_text(json.dumps(attributes))
    plain = {"filters": None, "compressor": None}
    zarr_v2(store, "X", plain | {"fill_value": 0}, np.ones((4, 3), "<f4").tobytes(), (4, 3), "<f4")
    zarr_v2(store, "obs/y", plain | {"fill_value": 0}, np.arange(4.0).tobytes(), dtype="<f8")
    zarr_v2(store, "obs/_index", plain | {"fill_value": 0}, np.arange(4.0).tobytes(), dtype="<f8")
    zarr_v2(store, "var/_index", codecs, pickle.dumps(Exploit(tmp_path / "executed")), (3,))
    message = refused("ingest", store, tmp_path / "new", "--label-column", "y", *SERIAL)
    # the library may refuse by itself, as where nothing but the codec is left to say what the type is
    assert "stored with pickle, which is not read" in message or "No Zarr data type found" in message
    assert not (tmp_path / "executed").exists()


def test_a_zarr_store_with_a_link(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / ".zgroup").write_text('{"zarr_format": 2}')
    (tmp_path / "a.zarr" / "X").symlink_to(tmp_path / "secret")
    assert OUT in refused("ingest", tmp_path / "a.zarr", tmp_path / "new", "--label-column", "y", *SERIAL)


def test_an_unfinished_ingest_of_somebody_else(at):
    (at / "new" / ".ingest").mkdir(parents=True)
    (at / "new" / ".ingest" / "plan.json").symlink_to(at.parent / "secret" / "file")
    assert OUT in refused("ingest", at / "rows.npy", at / "new", "--labels", at / "labels.npy", *SERIAL)
    shutil.rmtree(at / "new" / ".ingest")
    (at / "new" / ".ingest").symlink_to(at.parent / "secret")
    (at.parent / "secret" / "plan.json").write_text("{}")
    assert OUT in refused("ingest", at / "rows.npy", at / "new", "--labels", at / "labels.npy", *SERIAL)
    assert (at.parent / "secret" / "file").exists()


# -- anything --------------------------------------------------------------------------------------------

VALUES = [
    None, True, 0, -1, 1, 2**31, 2**63, 2**70, 1e308, -0.5, "", "x", "../x", "\x00", "\udcff", [], {}, [[]], [None],
    {"a": {}}, ["x", 1], [2**40], "0", "softmax", "class", "continuous",
]  # fmt: skip


def places(value, path=()):
    """Yield the paths to all values within a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


def replaced(value, path, by):
    if not path:
        return by
    copied = value.copy()
    copied[path[0]] = replaced(value[path[0]], path[1:], by)
    return copied


@pytest.fixture(scope="module")
def fuzzed(originals, tmp_path_factory):
    root = tmp_path_factory.mktemp("fuzzed") / "all"
    shutil.copytree(originals, root)
    return root


def outcome(function):
    """Return what a function returns, or "refused" where it says why in one line."""
    try:
        return function()
    except DistlsError as error:
        told = str(error)
    assert "\n" not in told
    return "refused"


FUZZED = {
    "dataset": ("data/zarr.json", "dataset"),
    "columns": ("data/columns/zarr.json", "columns"),
    "array": ("data/partitions/nnz/zarr.json", "dataset"),
    "model": ("run/model/bundle.json", "model"),
    "configuration": ("sgd/config.json", "run"),
    "status": ("sgd/status.json", "run"),
    "checkpoint": (None, "run"),
}


def sealed(name, content):
    """Make checksums right: a model comes from others, a checkpoint is the user's own."""
    if not isinstance(content, dict) or name == "checkpoint":
        return content
    content = dict(content)
    if "crc32c" in content:
        del content["crc32c"]
        content["crc32c"] = google_crc32c.value(canonical_json(content).encode())
    return content


def use(root, what):
    """Do what reads the files in question, and return what can be compared."""
    if what == "dataset":
        opened = open_dataset(root / "data")
        return opened.meta, [opened.read(i).x.data.tobytes() for i in range(len(opened))]
    if what == "columns":
        return open_dataset(root / "data").columns.read(0).x.data.tobytes()
    if what == "model":
        from distls.evaluation.evaluate import evaluate

        load_model(root / "run")
        return evaluate(root / "run", root / "data").n_rows
    copy = root.parent / "copied"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root / "sgd", copy)
    return resume(copy, executor=SerialExecutor()).model is not None


@pytest.mark.fast_cases("array", "status")
@pytest.mark.parametrize("kind", sorted(FUZZED))
@examples(40)
@given(place=st.integers(0, 10**6), value=st.sampled_from(VALUES), flip=st.integers(0, 10**6), bit=st.integers(0, 9))
def test_changed_values_and_bits(fuzzed, kind, place, value, flip, bit):
    """Any value of a description replaced, checksums made right but of a checkpoint; or any bit turned.

    Fault: Any bit or value of a description changed | data set, columns, array, model, configuration, status,
    checkpoint; 40 changes of each; 280 changes | used as before, or one line
    """
    name, what = FUZZED[kind]
    path = fuzzed / name if name else checkpoint(fuzzed / "sgd") / "bundle.json"
    before = path.read_bytes()
    try:
        if bit < 8 and flip % 3 == 0:
            changed = bytearray(before)
            changed[flip % len(before)] ^= 1 << bit
            path.write_bytes(changed)
        else:
            content = json.loads(before)
            everywhere = list(places(content))
            changed = sealed(kind, replaced(content, everywhere[place % len(everywhere)], value))
            path.write_text(json.dumps(changed))
        outcome(lambda: use(fuzzed, what))
    finally:
        path.write_bytes(before)
