"""Each row keeps its file, its number there and its id through shuffle, split, refused lines and predictions."""

import csv
import itertools
import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import zarr

import distls
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import CorruptDataError, ParameterError
from distls.storage.model.model import LinearModel

N = 300


def frame(seed=0):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((N, 2)).round(4)
    return pd.DataFrame(
        {
            "key": [f"k{seed}-{i}" for i in range(N)],
            "a": values[:, 0],
            "b": values[:, 1],
            "y": (values[:, 0] > 0).astype(int),
        }
    )


def origins_of(data):
    """Return the origins of all rows, with their values and labels."""
    parts = []
    for index in range(len(data)):
        part, sources = data.read(index), data.origins.read(index)
        files = np.zeros(len(sources.rows), int) if sources.files is None else sources.files
        found = pd.DataFrame({"row": sources.rows.astype(int), "file": files, "y": part.y})
        found["id"] = sources.ids.texts() if sources.ids is not None else ""
        found["a"] = part.x.values[:, 0] if hasattr(part.x, "values") else part.x.data[part.x.indptr[:-1]]
        parts.append(found)
    return pd.concat(parts)


def write(table, path):
    table.to_parquet(path) if path.suffix == ".parquet" else table.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_rows_of_tables_find_their_source(tmp_path, ending):
    tables = [frame(0), frame(1)]
    files = [write(table, tmp_path / f"t{k}.{ending}") for k, table in enumerate(tables)]
    options = {"label_column": "y", "id_column": "key", "split": {"test": 0.3}}
    distls.ingest(files, tmp_path / "d", **options, partition_size=800)
    datasets = [open_dataset(tmp_path / "d"), open_dataset(tmp_path / "d-test")]
    assert len(datasets[0]) > 2
    assert datasets[0].origins.facts.files == [path.name for path in files]
    found = pd.concat([origins_of(data) for data in datasets])
    # every row once, shuffled, with its own values
    assert len(found) == 2 * N == len(set(zip(found.file, found.row, strict=True)))
    assert not found.row.iloc[:N].is_monotonic_increasing
    for file, table in enumerate(tables):
        own = found[found.file == file].sort_values("row")
        assert own.row.tolist() == list(range(N))
        assert own.id.tolist() == table.key.tolist()
        np.testing.assert_allclose(own.a, table.a, rtol=1e-6)


def test_the_data_set_is_that_without_ids(tmp_path):
    path = write(frame(), tmp_path / "t.csv")
    distls.ingest(path, tmp_path / "kept", label_column="y", ignore_columns="key")
    distls.ingest(path, tmp_path / "bare", label_column="y", ignore_columns="key", row_numbers=False)
    kept, bare = open_dataset(tmp_path / "kept"), open_dataset(tmp_path / "bare")
    assert kept.fingerprint == bare.fingerprint
    assert bare.origins is None
    assert sorted(p.name for p in (tmp_path / "bare").iterdir()) == [
        "features", "partitions", "rows", "zarr.json",
    ]  # fmt: skip
    # the origins may be removed
    shutil.rmtree(tmp_path / "kept" / "origins")
    assert open_dataset(tmp_path / "kept").origins is None


def test_refused_and_blank_lines(tmp_path):
    table = frame()
    lines = write(table, tmp_path / "t.csv").read_text().splitlines()
    # row 5 and row 200 are no numbers, a blank line before row 100
    lines[6], lines[201] = "k,x", "k,1"
    lines.insert(101, "")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    distls.ingest(tmp_path / "t.csv", tmp_path / "d", label_column="y", id_column="key", on_error="skip",
                  categorical=())  # fmt: skip
    found = origins_of(open_dataset(tmp_path / "d")).sort_values("row")
    assert found.row.tolist() == [row for row in range(N) if row not in (5, 200)]
    assert found.id.tolist() == table.key[found.row].tolist()


@pytest.mark.fast_cases("vw", "text")
@pytest.mark.parametrize("kind", ["vw", "svm", "jsonl", "documents.csv", "documents.parquet", "text"])
def test_other_formats(tmp_path, kind):
    words = [f"word{i} more" for i in range(40)]
    ids = [f"id,{i}" if kind == "documents.csv" else f"id{i}" for i in range(40)]
    labels = [i % 2 for i in range(40)]
    table = pd.DataFrame({"text": words, "label": labels, "key": ids})
    options = {"id_column": "key"}
    path = tmp_path / f"f.{kind}"
    if kind == "vw":
        rows = [f"{y} {i}|f 3:1" for i, y in zip(ids, labels, strict=True)]
        rows[3] = f"{labels[3]} 1.0 'id3 |f 3:1"
        options = {"id_column": "tag"}
    elif kind == "svm":
        rows = [f"{y} {1 + n}:1 # {i}" for n, (i, y) in enumerate(zip(ids, labels, strict=True))]
        options = {"id_column": "comment"}
    elif kind == "jsonl":
        rows = [json.dumps(row) for row in table.to_dict("records")]
    elif kind == "text":
        rows, options, ids = [f"{y}\t{w}" for y, w in zip(labels, words, strict=True)], {}, [""] * 40
    else:
        rows, options = [], {"id_column": "key", "text_column": "text"}
        write(table, path)
    if rows:
        path.write_text("\n".join(rows) + "\n")
    distls.ingest(path, tmp_path / "d", format="text" if kind == "text" else "auto", **options)
    data = open_dataset(tmp_path / "d")
    found = origins_of(data).sort_values("row")
    assert found.row.tolist() == list(range(40))
    assert found.id.tolist() == ids
    assert [data.meta.classes[code] for code in found.y] == labels


def test_arrays_in_memory(tmp_path):
    x = np.arange(200.0).reshape(100, 2)
    distls.ingest(x, tmp_path / "d", y=np.arange(100) % 2)
    data = open_dataset(tmp_path / "d")
    assert data.origins.facts.files == []
    found = origins_of(data)
    assert found.a.tolist() == x[found.row, 0].tolist()


@pytest.mark.parametrize(("kind", "place"), [("vw", "tag"), ("svm", "comment")])
def test_text_has_one_place_of_ids(tmp_path, kind, place):
    path = tmp_path / f"f.{kind}"
    path.write_text("1 |f 1:1\n0 |f 2:1\n" if kind == "vw" else "1 1:1\n0 2:1\n")
    message = f'id_column: the ids of rows in {path} are in its {place}s: --id-column "{place}"'
    with pytest.raises(ParameterError, match=f"^{message}$"):
        distls.ingest(path, tmp_path / "d", id_column="key")


# -- predictions -----------------------------------------------------------------------------------------


def model_of(data):
    meta = data.meta
    return LinearModel(
        weights=np.array([[-1, 1], [0, 0]], np.float32), intercept=np.zeros(2, np.float32), classes=meta.classes,
        method="mcid", loss="softmax", params={}, transforms=meta.transforms, transforms_digest="",
        dataset_fingerprint=data.fingerprint, source=meta.source,
    )  # fmt: skip


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def held(tmp_path):
    """A model, and the table that its data were split from."""
    path = write(frame(), tmp_path / "t.csv")
    distls.ingest(path, tmp_path / "d", label_column="y", id_column="key", split={"test": 0.3})
    return model_of(open_dataset(tmp_path / "d")), path


def test_predictions_of_a_held_out_part_join_the_documents(held, tmp_path):
    model, path = held
    distls.predict(model, tmp_path / "d-test", tmp_path / "p.csv")
    rows = read_csv(tmp_path / "p.csv")
    # by the name of the data set's ids, which the model need not know, they are predictions that may be replaced
    unknown = replace(model, source={"format": "csv", "files": []})
    distls.predict(unknown, tmp_path / "d-test", tmp_path / "p.csv", overwrite=True)
    assert [*rows[0]] == ["row", "label", "score", "source_row", "key"]
    documents = pd.read_csv(path).set_index("key", drop=False)
    for row in rows:
        assert row["label"] == str(documents.y[row["key"]])
        assert documents.key.iloc[int(row["source_row"])] == row["key"]
    distls.predict(model, tmp_path / "d-test", tmp_path / "p.zarr")
    group = zarr.open_group(str(tmp_path / "p.zarr"), mode="r")
    ends, text = group["id_ends"][:], group["id_text"][:].tobytes()
    assert [text[a:b].decode() for a, b in itertools.pairwise(ends)] == [row["key"] for row in rows]
    assert group["source_row"][:].tolist() == [int(row["source_row"]) for row in rows]


def test_predictions_of_files_have_their_ids(held, tmp_path):
    model, path = held
    distls.predict(model, path, tmp_path / "one.csv", labelled=True)
    rows = read_csv(tmp_path / "one.csv")
    assert [*rows[0]] == ["row", "label", "score", "key"]
    assert [row["key"] for row in rows] == frame().key.tolist()
    # a file may be given twice
    distls.predict(model, [path, path], tmp_path / "two.csv", labelled=True)
    rows = read_csv(tmp_path / "two.csv")
    assert [*rows[0]] == ["row", "label", "score", "source_file", "source_row", "key"]
    assert [row["source_row"] for row in rows] == [str(i) for i in range(N)] * 2
    # without the column, and with another
    other = write(frame().drop(columns="key").assign(name="same"), tmp_path / "other.csv")
    with pytest.raises(distls.DistlsError, match='column "name" is none of'):
        distls.predict(model, other, tmp_path / "x.csv", labelled=True)
    distls.predict(model, other, tmp_path / "x.csv", labelled=True, id_column="name")
    assert {row["name"] for row in read_csv(tmp_path / "x.csv")} == {"same"}
    # its own predictions are known by whatever name, and those of a name that is a column here have another
    distls.predict(model, other, tmp_path / "x.csv", labelled=True, id_column="name", overwrite=True)
    distls.predict(model, other, tmp_path / "x.csv", labelled=True, id_column="last", overwrite=True)
    taken = write(frame().drop(columns="key").assign(score="same"), tmp_path / "taken.csv")
    distls.predict(model, taken, tmp_path / "y.csv", labelled=True, id_column="score")
    assert {row["id"] for row in read_csv(tmp_path / "y.csv")} == {"same"}
    with pytest.raises(ParameterError, match="id_column is for source files"):
        distls.predict(model, tmp_path / "d", tmp_path / "z.csv", id_column="name")


def test_a_frame_is_served_with_and_without_the_id(held, tmp_path):
    from distls.storage.model.model import save_model

    model, path = held
    save_model(tmp_path / "run" / "model", model)
    served = distls.load_model(tmp_path / "run")
    table = pd.read_csv(path)
    assert served.predict(table).tolist() == served.predict(table[["a", "b"]]).tolist() == table.y.tolist()


@pytest.mark.parametrize("name", ["row", "id_text", "id_ends"])
def test_damage_is_found(held, tmp_path, name):
    model, _ = held
    chunk = tmp_path / "d-test" / "origins" / "00000000" / name / "c" / "0"
    content = bytearray(chunk.read_bytes())
    content[0] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(CorruptDataError, match=f"origins of partition 0, array {name}: .*origins to do without"):
        distls.predict(model, tmp_path / "d-test", tmp_path / "p.csv")
    assert not (tmp_path / "p.csv").exists()


def test_origins_of_another_data_set_are_refused(held, tmp_path):
    shutil.rmtree(tmp_path / "d-test" / "origins")
    shutil.copytree(tmp_path / "d" / "origins", tmp_path / "d-test" / "origins")
    with pytest.raises(CorruptDataError, match="they are those of another data set"):
        _ = open_dataset(tmp_path / "d-test").origins


def test_origins_whose_description_is_lost_are_refused(tmp_path):
    """Without a word they would be missing from predictions; removed whole they are not wanted."""
    distls.ingest(frame(), tmp_path / "d", label_column="y")
    (tmp_path / "d" / "origins" / "zarr.json").unlink()
    with pytest.raises(CorruptDataError, match="the origins of its rows cannot be read"):
        _ = open_dataset(tmp_path / "d").origins
    shutil.rmtree(tmp_path / "d" / "origins")
    assert open_dataset(tmp_path / "d").origins is None
