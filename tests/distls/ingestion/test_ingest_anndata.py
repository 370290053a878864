"""AnnData stores, written by the real library, to data sets."""

import json
import shutil
import sys
import warnings

import google_crc32c
import ingest_helpers
import numcodecs
import numpy as np
import pytest
import scipy.sparse
from helpers import raised

import distls.ingestion.request.source_plan
from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.testing.formats import read_all
from distls.workers.ingestion.records.messages import NO_LABEL

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")

KINDS = ["a.h5ad", "a2.zarr", "a3.zarr"]
TYPES = ["T cell", "B cell", "NK", "Läufer"]


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    """Several items, and several blocks in each."""
    monkeypatch.setattr(distls.ingestion.request.source_plan, "RANGE_BYTES", 1500)


def make(n_rows=120, n_features=30, sparse=True, seed=0):
    random = np.random.default_rng(seed)
    x = scipy.sparse.random(n_rows, n_features, 0.2, "csr", np.float32, random)
    codes = random.integers(0, len(TYPES), n_rows)
    words = [TYPES[code] for code in codes]
    columns = {
        "kind": pandas.Categorical(words), "word": np.array(words, dtype=object), "number": codes.astype(np.int64),
        "integer": pandas.array(codes, dtype="Int64"), "flag": codes > 1, "fraction": codes + 0.5,
        "grade": pandas.Categorical(codes), "weight": np.linspace(0, 2, n_rows),
    }  # fmt: skip
    names = [f"r{k}" for k in range(n_rows)]
    return anndata.AnnData(
        x if sparse else x.toarray(),
        obs=pandas.DataFrame(columns, index=names),
        var=pandas.DataFrame(index=[f"gene {k}" for k in range(n_features)]),
    )


def write(path, data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if path.suffix == ".h5ad":
            # words stay words: anndata makes categories of them otherwise
            data.write_h5ad(path, convert_strings_to_categoricals=False)
        else:
            with anndata.settings.override(zarr_write_format=int(path.stem[-1])):
                data.write_zarr(path, convert_strings_to_categoricals=False)
    return path


# -- rows ------------------------------------------------------------------------------------------------


@pytest.mark.slow_cases("a2.zarr")
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_rows_labels_and_names_are_those_of_the_library(tmp_path, name, sparse):
    data = make(sparse=sparse)
    path = write(tmp_path / name, data)
    ingest(path, tmp_path / "d", label_column="kind", weight_column="weight", shuffle=False, partition_size=4000)
    found = open_dataset(tmp_path / "d")
    x, y = read_all(tmp_path / "d")
    assert np.array_equal(x, data.X.toarray() if sparse else data.X)
    assert [found.meta.classes[code] for code in y] == data.obs["kind"].tolist()
    assert found.meta.classes == sorted(TYPES)
    assert found.feature_names() == data.var_names.tolist()
    assert (found.meta.layout, found.meta.weighted) == ("csr" if sparse else "dense", True)
    assert found.meta.weight_sum == pytest.approx(data.obs["weight"].sum(), rel=1e-6)
    assert found.meta.source["format"] == "anndata"
    if name != "a.h5ad":
        version = 3 if (path / "zarr.json").exists() else 2
        assert version == int(name[1])


@pytest.mark.fast_cases(r"word-a\.h5ad$", r"grade-a3\.zarr$")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("column", ["word", "number", "integer", "flag", "fraction", "grade"])
def test_labels_of_every_kind(tmp_path, name, column):
    data = make()
    ingest(write(tmp_path / name, data), tmp_path / "d", label_column=column, shuffle=False)
    found, (_, y) = open_dataset(tmp_path / "d"), read_all(tmp_path / "d")
    values = data.obs[column].tolist()
    if column == "fraction":
        assert found.meta.target == "continuous"
        assert y[:, 0].tolist() == values
    else:
        assert [found.meta.classes[code] for code in y] == values


def test_several_stores_and_no_labels(tmp_path):
    one, other = make(50), make(70, seed=1)
    paths = [write(tmp_path / "a.h5ad", one), write(tmp_path / "b3.zarr", other)]
    ingest(paths, tmp_path / "d", unlabelled=True)
    assert np.array_equal(read_all(tmp_path / "d")[0], np.concatenate([one.X.toarray(), other.X.toarray()]))


@pytest.mark.parametrize("old", ["obs", "X"])
def test_encodings_of_older_versions_are_refused(tmp_path, old):
    """Categories apart from their codes, and a sparse matrix without the attributes of today."""
    h5py = pytest.importorskip("h5py")
    path = write(tmp_path / "a.h5ad", make())
    with h5py.File(path, "r+") as store:
        if old == "obs":
            codes, categories = store["obs/kind/codes"][:], store["obs/kind/categories"].asstr()[:]
            del store["obs/kind"]
            store["obs/kind"] = codes
            store["obs/__categories/kind"] = categories.tolist()
        else:
            attributes = store["X"].attrs
            attributes["h5sparse_format"], attributes["h5sparse_shape"] = "csr", attributes["shape"]
            del attributes["encoding-type"], attributes["encoding-version"], attributes["shape"]
    assert raised(BadInputError, ingest, path, tmp_path / "d", label_column="kind") == (
        f"{path}: {old} is stored as before anndata 0.8; read the file with anndata and write it again"
    )
    assert not (tmp_path / "d").exists()


# -- bits and test data ----------------------------------------------------------------------------------


def test_test_data_have_the_same_features(tmp_path):
    data, test = make(), make(40, seed=3)
    ingest(write(tmp_path / "a.h5ad", data), tmp_path / "d", label_column="kind", min_count=20, transform="log1p")
    ingest(write(tmp_path / "b.h5ad", test), tmp_path / "e", like=tmp_path / "d", shuffle=False)
    train, found = open_dataset(tmp_path / "d"), open_dataset(tmp_path / "e")
    kept = [name for name, count in zip(data.var_names, (data.X != 0).sum(axis=0).A1, strict=True) if count >= 20]
    assert 0 < len(kept) < 30
    assert train.feature_names() == found.feature_names() == kept
    assert np.allclose(read_all(tmp_path / "e")[0], np.log1p(test[:, kept].X.toarray()))
    other = test[:, [1, 0, *range(2, 30)]].copy()
    place = min(k for k, name in enumerate(kept) if name in ("gene 0", "gene 1"))
    names = [
        name if name not in ("gene 0", "gene 1") else {"gene 0": "gene 1", "gene 1": "gene 0"}[name] for name in kept
    ]
    assert raised(MismatchError, ingest, write(tmp_path / "c.h5ad", other), tmp_path / "f", like=tmp_path / "d") == (
        f'{tmp_path}/c.h5ad: feature {place} is "{names[place]}", but it is "{kept[place]}" in {tmp_path}/d'
    )
    with pytest.raises(MismatchError) as caught:
        ingest(write(tmp_path / "g.h5ad", test[:, :3].copy()), tmp_path / "f", like=tmp_path / "d")
    assert str(caught.value).endswith(f"but there are {len(kept)} in {tmp_path}/d")


# -- what is refused -------------------------------------------------------------------------------------


def test_refused_columns_and_values(tmp_path):
    def refusal(kind=BadInputError, **options):
        return ingest_helpers.refusal(kind, path, tmp_path / "d", **options)

    data = make()
    data.obs.loc["r77", "kind"] = None
    data.obs.loc["r33", "integer"] = None
    data.X.data[data.X.indptr[100]] = np.nan
    path = write(tmp_path / "a.h5ad", data)
    listed = ", ".join(f'"{name}"' for name in data.obs.columns)
    assert refusal() == (
        f"{path}: name the column of labels with --label-column (or ingest --unlabelled); there are {listed}"
    )
    assert refusal(ParameterError, label_column="z") == f'label_column: {path} has no column "z"; it has {listed}'
    assert refusal(label_column="kind") == f'{path}, row 77: column "kind": {NO_LABEL}'
    assert refusal(label_column="integer") == f'{path}, row 33: column "integer": {NO_LABEL}'
    assert refusal(label_column="number") == f"{path}, row 100: a value is not finite in float32"
    assert refusal(label_column="number", weight_column="word") == (
        f"{path}, row 0: the sample weight is negative or not finite; 31 of 31 rows read are refused for this"
    )
    report = ingest(path, tmp_path / "d", label_column="kind", on_error="skip")
    assert (report.rows, report.skipped) == (118, 2)


@pytest.mark.parametrize("name", ["a.h5ad", "a3.zarr"])
def test_refused_stores(tmp_path, monkeypatch, name):
    def refusal(path, kind=BadInputError):
        return ingest_helpers.refusal(kind, path, tmp_path / "d", label_column="kind")

    data = make()
    data.X = data.X.tocsc()
    path = write(tmp_path / name, data)
    assert refusal(path) == (
        f"{path}: X is stored as csc_matrix; rows are needed: adata.X = adata.X.tocsr(), and write it again"
    )
    ingest(np.ones((2, 2)), tmp_path / "mine", y=[0, 1])
    assert refusal(tmp_path / "mine") == f"{tmp_path}/mine: a data set of distls, not a source"
    assert refusal(tmp_path) == f"{tmp_path}: a folder; name the files in it"
    one, two = write(tmp_path / f"1-{name}", make()), write(tmp_path / f"2-{name}", make(sparse=False))
    said = raised(BadInputError, ingest, [one, two], tmp_path / "d", label_column="kind")
    assert said == f"{two}: X is dense, but that of {one} is sparse"


def test_a_chunk_of_a_negative_size_is_refused(tmp_path):
    store = write(tmp_path / "a2.zarr", make())
    chunk = store / "X" / "data" / "0"
    assert chunk.exists()
    # the header of a buffer of blosc: four bytes of flags, then its decoded size
    chunk.write_bytes(b"\x02\x01\x21\x04" + b"\xff" * 12)
    with pytest.raises(BadInputError, match=r"a2\.zarr: not a readable AnnData store \("):
        ingest(store, tmp_path / "d", label_column="kind")


@pytest.mark.parametrize("shape", [[2**27], [120]], ids=["more than is stored", "more than the shape"])
def test_a_chunk_that_claims_more_than_there_can_be_is_refused(tmp_path, shape):
    store = write(tmp_path / "a2.zarr", make())
    described = store / "X" / "data" / ".zarray"
    metadata = json.loads(described.read_text())
    described.write_text(json.dumps({**metadata, "shape": shape, "chunks": [2**27]}))
    said = raised(BadInputError, ingest, store, tmp_path / "d", label_column="kind")
    assert f"X/data has chunks of {4 * 2**27} bytes, which is more than its shape and the" in said


def test_a_chunk_of_hdf5_that_claims_more_than_is_stored_is_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = write(tmp_path / "a.h5ad", make())
    with h5py.File(path, "r+") as file:
        whole, attributes = file["X/data"][:], dict(file["X/data"].attrs)
        del file["X/data"]
        made = file.create_dataset("X/data", whole.shape, "f4", chunks=(2**27,), maxshape=(None,), compression="gzip")
        made.attrs.update(attributes)
    with pytest.raises(BadInputError, match=f"X/data has chunks of {4 * 2**27} bytes, which is more than its shape"):
        ingest(path, tmp_path / "d", label_column="kind")


def shard_strings(store, name):
    """Store an array of strings again, in shards of two chunks."""
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(store, mode="r+", use_consolidated=False)
    words, attributes = group[name][:], dict(group[name].attrs)
    n_chunks = -(-len(words) // 2)
    del group[name]
    made = group.create_array(
        name, shape=words.shape, chunks=(2,), shards=(2 * n_chunks,), dtype="string", attributes=attributes
    )
    made[:] = words


def promise(store, name, count):
    """Let the last chunk of strings say that it has `count` of them."""
    path = store / name / "c" / "0" if (store / name / "c").exists() else store / name / "0"
    content = path.read_bytes()
    if not (store / name / "zarr.json").exists():
        packer = numcodecs.Blosc()
        path.write_bytes(packer.encode(count + packer.decode(content)[4:]))
        return
    packer, described = numcodecs.Zstd(), json.loads((store / name / "zarr.json").read_text())
    if described["codecs"][0]["name"] != "sharding_indexed":
        path.write_bytes(packer.encode(count + packer.decode(content)[4:]))
        return
    grids = described["chunk_grid"], described["codecs"][0]
    per_shard, per_chunk = (grid["configuration"]["chunk_shape"][0] for grid in grids)
    size = 16 * (per_shard // per_chunk)
    index = np.frombuffer(content[-size - 4 : -4], "<u8").reshape(-1, 2).copy()
    start, length = index[-1].tolist()
    chunk = packer.encode(count + packer.decode(content[start : start + length])[4:])
    index[-1] = len(content), len(chunk)
    checksum = google_crc32c.value(index.tobytes()).to_bytes(4, "little")
    path.write_bytes(content + chunk + index.tobytes() + checksum)


@pytest.mark.fast_cases(r"obs/kind/categories-a2\.zarr$", r"var/_index-shards3\.zarr$")
@pytest.mark.parametrize("name", ["a2.zarr", "a3.zarr", "shards3.zarr"])
@pytest.mark.parametrize("member", ["obs/kind/categories", "obs/word", "var/_index"])
def test_a_chunk_of_strings_that_promises_more_than_it_has_is_refused(tmp_path, name, member):
    """A promised string takes 8 bytes before the first is read; four bytes promise 32 GiB.

    Fault: A chunk of strings of an AnnData store that promises more of them than it has | categories, labels,
    names of features; zarr 2, 3, shards | one line, exit code 1, before room is made
    """
    store = write(tmp_path / name, make())
    label = member.split("/")[1] if member.startswith("obs") else "kind"
    if (store / member / "values").exists():  # with pandas 3 they may be missing
        member = f"{member}/values"
    if name.startswith("shards"):
        shard_strings(store, member)
    ingest(store, tmp_path / "good", label_column=label)
    assert sorted(open_dataset(tmp_path / "good").meta.classes) == sorted(TYPES)
    promise(store, member, (2**27).to_bytes(4, "little"))
    said = raised(BadInputError, ingest, store, tmp_path / "d", label_column=label)
    assert f"a chunk of {member} promises {2**27} strings and has " in said


def test_damaged_stores_are_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "a.h5ad", make())
    (tmp_path / "b.h5ad").write_bytes(path.read_bytes()[:5000])
    with pytest.raises(BadInputError, match=r"b\.h5ad: not a readable AnnData store \("):
        ingest(tmp_path / "b.h5ad", tmp_path / "d", label_column="kind")
    store = write(tmp_path / "a3.zarr", make())
    shutil.rmtree(store / "var")
    assert raised(BadInputError, ingest, store, tmp_path / "d", label_column="kind") == (
        f"{store}: no AnnData store, which has X, obs and var; read the arrays of another file with h5py or zarr, and "
        "save them by numpy.save or give them to distls.ingest"
    )
    shutil.rmtree(store)
    store = write(store, make())
    shutil.rmtree(store / "X" / "data" / "c")  # zarr reads zeros
    with pytest.raises(BadInputError) as caught:
        ingest(store, tmp_path / "d", label_column="kind")
    assert str(caught.value) == f"{store}: not a readable AnnData store (1 of 1 chunks of X/data are missing)"
    monkeypatch.setitem(sys.modules, "h5py", None)
    said = raised(BadInputError, ingest, path, tmp_path / "d", label_column="kind")
    assert said == f"{path}: HDF5 files are read with h5py; pip install 'distls[anndata]'"
