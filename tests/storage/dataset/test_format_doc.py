"""docs/format.md is enough: a reader written from it alone reads what we read, and computes our fingerprint.

The first part knows neither zarr nor distls. Section numbers are those of docs/format.md.
"""

import hashlib
import json
import math
from pathlib import Path

import google_crc32c
import numcodecs.blosc
import numcodecs.zstd
import numpy as np
import pytest

from distls.columns.sharding import add_columns

DECODERS = {"none": lambda payload: payload, "zstd": numcodecs.zstd.decompress, "lz4": numcodecs.blosc.decompress}


def chunk(folder, shape, dtype, codec="none", size=None, checksum=None):
    """Section 1: one array of one chunk; sections 4 and 7 say what to check it against."""
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    content = folder.joinpath("c", *("0" for _ in shape)).read_bytes()
    payload, tail = content[:-4], int.from_bytes(content[-4:], "little")
    assert size is None or len(content) == size
    assert google_crc32c.value(payload) == tail == (tail if checksum is None else checksum)
    return np.frombuffer(DECODERS[codec](payload), np.dtype(dtype).newbyteorder("<")).reshape(shape)


def table_of(group):
    """Section 4."""
    table = {}
    for folder in (path for path in group.iterdir() if path.is_dir()):
        described = json.loads((folder / "zarr.json").read_text())
        shape, dtype = described["shape"], described["data_type"]
        assert dtype == ("uint32" if folder.name.endswith(".crc32c") else "int64")
        present = (folder / "c" / "0").exists()
        table[folder.name] = chunk(folder, shape, dtype) if present else np.zeros(shape, dtype)
    return table


def fingerprint(meta, table, left_out="fingerprint"):
    """Section 6."""
    covered = {name: value for name, value in meta.items() if name != left_out}
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"), allow_nan=False)
    stream = text.encode()
    for name in sorted(table):
        stream += name.encode() + table[name].astype(table[name].dtype.newbyteorder("<")).tobytes()
    return hashlib.sha256(stream).hexdigest()


def arrays_of(meta, rows, nnz, sizes):
    """Section 3: name -> type and shape."""
    wanted = {"X": (meta["dtype"], (rows, meta["n_features"]))}
    if meta["layout"] == "csr":
        width = "uint16" if meta["n_features"] <= 65_536 else "uint32"
        wanted = {"data": (meta["dtype"], (nnz,)), "indices": (width, (nnz,)), "indptr": ("int64", (rows + 1,))}
    if meta["target"] == "class":
        wanted["y"] = "int32", (rows,)
    elif meta["target"] == "continuous":
        wanted["y"] = "float64", (rows, meta["n_targets"])
    elif meta["target"] == "multilabel":
        labels = max(sizes["y/indices"] - 4, 0) // 4
        wanted |= {"y/data": ("float32", (labels,)), "y/indices": ("uint32", (labels,))}
        wanted["y/indptr"] = "int64", (rows + 1,)
    return wanted | ({"sample_weight": ("float32", (rows,))} if meta["weighted"] else {})


def read_dataset(root):
    """Section 7: the metadata, and the arrays of every partition by name."""
    meta = json.loads((root / "zarr.json").read_text())["attributes"]["distls"]
    assert meta["format_version"] == 1
    table = table_of(root / "partitions")
    assert fingerprint(meta, table) == meta["fingerprint"]
    partitions = []
    for index in range(len(table["rows"])):
        entry = {name.replace(".", "/"): int(values[index]) for name, values in table.items()}
        sizes = {name.removesuffix("/size"): n for name, n in entry.items() if name.endswith("/size")}
        wanted = arrays_of(meta, entry["rows"], entry["nnz"], sizes)
        assert sizes.keys() == wanted.keys()
        partitions.append(
            {
                name: chunk(
                    root / "rows" / f"{index:08d}" / name, shape, dtype, meta["codecs"].get(name, "none"),
                    sizes[name], entry[f"{name}/crc32c"],
                )
                for name, (dtype, shape) in wanted.items()
            }
        )  # fmt: skip
    return meta, partitions


def read_columns(root):
    """Section 12: the metadata, the first column of each shard, and its arrays by name."""
    dataset = json.loads((root / "zarr.json").read_text())["attributes"]["distls"]
    meta = json.loads((root / "columns" / "zarr.json").read_text())["attributes"]["distls_columns"]
    assert meta["format_version"] == 1
    assert meta["dataset_fingerprint"] == dataset["fingerprint"]
    table = table_of(root / "columns" / "shards")
    assert fingerprint(meta, table, "digest") == meta["digest"]
    assert (table["columns"].sum(), table["nnz"].sum()) == (dataset["n_features"], dataset["nnz"])
    firsts = [int(table["columns"][:k].sum()) for k in range(len(table["columns"]))]
    shards = []
    for index, (columns, nnz) in enumerate(zip(table["columns"], table["nnz"], strict=True)):
        wanted = {
            "data": (dataset["dtype"], (nnz,)),
            "indices": ("uint16" if dataset["n_rows"] <= 65_536 else "uint32", (nnz,)),
            "indptr": ("int64", (columns + 1,)),
        }
        if dataset["layout"] == "dense":
            wanted = {"XT": (dataset["dtype"], (columns, dataset["n_rows"]))}
        assert table.keys() == {"columns", "nnz"} | {f"{n}.{k}" for n in wanted for k in ("size", "crc32c")}
        shards.append(
            {
                name: chunk(
                    root / "columns" / f"{index:08d}" / name, shape, dtype,
                    meta["codec"] if name in ("data", "XT") else "none", table[f"{name}.size"][index],
                    table[f"{name}.crc32c"][index],
                )
                for name, (dtype, shape) in wanted.items()
            }
        )  # fmt: skip
    return meta, firsts, shards


def features_of(root, meta):
    """Section 5, for arrays of one chunk."""
    arrays = {}
    for name, checksum in meta.get("features", {}).items():
        described = json.loads((root / "features" / name / "zarr.json").read_text())
        arrays[name] = chunk(root / "features" / name, described["shape"], described["data_type"])
        assert google_crc32c.value(arrays[name].tobytes()) == checksum
    return arrays


def read_bundle(folder):
    """Section 10."""
    content = json.loads((folder / "bundle.json").read_text())
    checksum = content.pop("crc32c")
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    assert google_crc32c.value(text.encode()) == checksum
    arrays = {}
    for name, described in content["arrays"].items():
        assert google_crc32c.value((folder / f"{name}.npy").read_bytes()) == described["crc32c"]
        arrays[name] = np.load(folder / f"{name}.npy", allow_pickle=False)
        assert [list(arrays[name].shape), arrays[name].dtype.str] == [described["shape"], described["dtype"]]
    return content["kind"], content["version"], content["attributes"], arrays


# -- the comparison with ours ----------------------------------------------------------------------------


def ours(partition):
    x, y, weight = partition
    arrays = dict(zip(x._fields, x, strict=True)) if len(x) == 3 else {"X": x.values}
    if isinstance(y, tuple):
        arrays |= {f"y/{name}": array for name, array in zip(y._fields, y, strict=True)}
    elif y is not None:
        arrays["y"] = y
    return arrays if weight is None else arrays | {"sample_weight": weight}


VARIANTS = [
    {"target": target, "codec": codec, "weighted": codec != "none", "dtype": dtype}
    for target in ("class", "multilabel", "continuous", "none")
    for codec, dtype in (("none", "float32"), ("zstd", "float64"), ("lz4", "float32"))
]


@pytest.mark.fast_cases(
    "class-none-False-float32-csr", "class-lz4-True-float32-dense", "multilabel-zstd-True-float64-wide",
    "continuous-zstd-True-float64-csr", "none-none-False-float32-dense", "none-lz4-True-float32-wide",
)  # fmt: skip
@pytest.mark.parametrize("layout", ["csr", "dense", "wide"])
@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: "-".join(map(str, options.values())))
def test_another_reader_reads_the_same(small_csr, small_dense, layout, options):
    width = {"n_features": 65_537} if layout == "wide" else {}
    make = small_dense if layout == "dense" else small_csr
    written = make(rows=(5, 0, 7), features={"idf": np.arange(37.0)}, **options, **width)
    meta, partitions = read_dataset(written.path)
    assert meta["fingerprint"] == written.dataset.fingerprint
    assert len(partitions) == len(written.dataset)
    for index, arrays in enumerate(partitions):
        expected = ours(written.dataset.read(index))
        assert arrays.keys() == expected.keys()
        for name, array in arrays.items():
            assert (array.dtype, array.shape) == (expected[name].dtype, expected[name].shape)
            assert array.tobytes() == expected[name].tobytes()
    assert features_of(written.path, meta)["idf"].tolist() == written.dataset.features()["idf"].tolist()


@pytest.mark.fast_cases("none-csr", "zstd-dense", "lz4-long")
@pytest.mark.parametrize("layout", ["csr", "dense", "long"])
@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_another_reader_reads_the_same_columns(small_csr, small_dense, layout, codec):
    make = small_dense if layout == "dense" else small_csr
    rows, n_features = ((65_537, 9), 3) if layout == "long" else ((600, 0, 700), 37)
    written = make(rows=rows, n_features=n_features, codec=codec)
    shards = add_columns(written.path).columns
    meta, firsts, read = read_columns(written.path)
    assert (meta["digest"], meta["shard_size"], meta["codec"]) == (
        shards.digest, shards.shard_size, shards.codec
    )  # fmt: skip
    assert len(read) == len(shards)
    assert meta["codec"] == ("none" if layout == "dense" else codec)
    for index, arrays in enumerate(read):
        shard = shards.read(index)
        assert shard.first == firsts[index]
        names = ("XT",) if layout == "dense" else ("indptr", "indices", "data")
        for name, expected in zip(names, shard.x, strict=True):
            assert (arrays[name].dtype, arrays[name].shape) == (expected.dtype, expected.shape)
            assert arrays[name].tobytes() == expected.tobytes()


def test_another_reader_refuses_what_is_changed(small_csr):
    written = small_csr()
    path = written.path / "rows" / "00000001" / "y" / "c" / "0"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    with pytest.raises(AssertionError):
        read_dataset(written.path)


def test_another_reader_reads_models(tmp_path):
    from distls.storage.model.model import LinearModel, save_model

    weights, intercept = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([0.5, 2], np.float32)
    save_model(tmp_path / "m", LinearModel(weights, intercept, ["a", 1], "mcid", "softmax", {}, [], "", "f"))
    kind, version, attributes, arrays = read_bundle(tmp_path / "m")
    assert (kind, version) == ("model", 1)
    assert attributes["classes"] == ["a", 1]
    assert arrays["weights"].tolist() == weights.tolist()
    by_hand = hashlib.sha256(arrays["weights"].tobytes() + arrays["intercept"].tobytes()).hexdigest()
    assert attributes["weights_sha256"] == by_hand


def test_the_document_names_every_member_and_array(small_csr):
    text = (Path(__file__).parents[3] / "docs" / "format.md").read_text(encoding="utf-8")
    meta, partitions = read_dataset(small_csr(target="multilabel", weighted=True, features={"a": np.ones(1)}).path)
    for name in [*meta, *partitions[0]]:
        assert f"| `{name}` |" in text
    written = small_csr()
    add_columns(written.path)
    columns, _, shards = read_columns(written.path)
    section = text[text.index("## 12.") :]
    for name in [*columns, *shards[0], "XT"]:
        assert f"| `{name}` |" in section
