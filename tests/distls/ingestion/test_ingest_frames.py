"""Data frames to data sets: the rows, names and notices of the same frame in a Parquet file."""

import numpy as np
import pytest

from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.testing.formats import read_all

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

OPTIONS = {"label_column": "label", "na": "0", "split": {"held": 0.25}, "transform": "standardize"}


def people(n_rows=120, seed=3):
    """A frame with each kind of column: numbers, missing ones, booleans, words, categories; labels that are words."""
    random = np.random.default_rng(seed)
    age = random.normal(40, 9, n_rows).round(1)
    frame = pd.DataFrame(
        {
            "age": np.where(random.random(n_rows) < 0.1, np.nan, age),
            "visits": pd.array(random.integers(0, 9, n_rows), "Int64"),
            "owner": random.random(n_rows) < 0.5,
            "city": random.choice(["Köln", "Ulm", "Bonn"], n_rows),
            "size": pd.Categorical(random.choice(["s", "m", "l"], n_rows)),
            "label": random.choice(["yes", "no"], n_rows),
        },
        index=random.permutation(n_rows) + 7,
    )
    frame.loc[frame.index[:5], "visits"] = pd.NA
    return frame


def in_polars(frame):
    return pytest.importorskip("polars").from_pandas(frame)


def in_dask(frame):
    frames = pytest.importorskip("dask.dataframe")
    return frames.from_pandas(frame, npartitions=1, sort=False)


def stored(path):
    """What a data set is, but for the name of its source."""
    data = open_dataset(path)
    meta = data.meta.to_json()
    meta["source"] = {**meta["source"], "files": []}
    arrays = {name: values.tolist() for name, values in data.table.to_arrays().items()}
    return meta, data.feature_names(), arrays


@pytest.mark.parametrize("kind", [lambda frame: frame, in_polars, pa.Table.from_pandas, in_dask])
def test_it_is_the_parquet_file_of_the_frame(tmp_path, kind):
    frame = people()
    frame.to_parquet(tmp_path / "a.parquet")
    given = kind(frame)
    if hasattr(given, "column_names"):  # Arrow takes the row labels along, which Parquet readers leave out
        given = given.drop_columns(["__index_level_0__"])
    before = ingest(tmp_path / "a.parquet", tmp_path / "file", **OPTIONS)
    report = ingest(given, tmp_path / "frame", **OPTIONS)
    assert report.notices == before.notices
    for name in ("", "-held"):
        assert stored(f"{tmp_path}/frame{name}") == stored(f"{tmp_path}/file{name}")
    names = open_dataset(tmp_path / "frame").feature_names()
    assert names[:5] == ["age", "visits", "owner", "city=Bonn", "city=Köln"]


def test_labels_and_weights_beside_the_frame_are_columns_of_it(tmp_path):
    frame = people()
    weights = np.linspace(1, 2, len(frame))
    x = frame.drop(columns="label")
    ingest(x, tmp_path / "beside", y=frame["label"], sample_weight=weights, na="0")
    inside = x.assign(y=frame["label"], sample_weight=weights)
    ingest(inside, tmp_path / "inside", label_column="y", weight_column="sample_weight", na="0")
    assert stored(tmp_path / "beside") == stored(tmp_path / "inside")
    # a column of the same name stays a feature
    ingest(x.assign(y=1.5), tmp_path / "both", y=frame["label"].to_numpy(), na="0")
    assert "y" in open_dataset(tmp_path / "both").feature_names()


def test_numbers_alone_are_the_rows_of_the_array(tmp_path):
    random = np.random.default_rng(0)
    x, y = random.standard_normal((90, 4)), random.integers(0, 3, 90)
    frame = pd.DataFrame(x, columns=["a", "b", 3, "d"])
    ingest(x, tmp_path / "array", y=y)
    ingest(frame, tmp_path / "frame", y=y)
    data, other = open_dataset(tmp_path / "frame"), open_dataset(tmp_path / "array")
    assert [*data.table.to_arrays()] == [*other.table.to_arrays()]
    for found, wanted in zip(data.table.to_arrays().values(), other.table.to_arrays().values(), strict=True):
        assert np.array_equal(found, wanted)
    assert data.feature_names() == ["a", "b", "3", "d"]


@pytest.mark.parametrize(
    "column",
    [
        pd.arrays.SparseArray([0.0, 1.5, 0.0, np.nan] * 8, fill_value=0.0),
        pd.arrays.SparseArray([False, True] * 16),
        np.arange(32, dtype=np.longdouble),
    ],
)
def test_numbers_that_arrow_does_not_know_are_numbers(tmp_path, column):
    frame = pd.DataFrame({"a": column, "x": np.arange(32) / 4, "label": ["yes", "no"] * 16})
    ingest(frame, tmp_path / "a", label_column="label", na=0)
    ingest(frame.assign(a=np.asarray(column, float)), tmp_path / "b", label_column="label", na=0)
    assert stored(tmp_path / "a") == stored(tmp_path / "b")
    assert stored(tmp_path / "a")[1] == ["a", "x"]


def test_partitions_of_a_dask_frame_are_row_groups(tmp_path):
    frame = people()
    lazy = pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=4, sort=False)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "a.parquet", row_group_size=30)
    ingest(tmp_path / "a.parquet", tmp_path / "file", shuffle=False, **OPTIONS)
    ingest(lazy, tmp_path / "frame", shuffle=False, **OPTIONS)
    assert stored(tmp_path / "frame") == stored(tmp_path / "file")
    ingest(lazy.drop(columns="label"), tmp_path / "beside", y=lazy["label"], na="0")
    assert open_dataset(tmp_path / "beside").meta.n_rows == 120


def test_types_of_a_dask_frame_are_those_of_all_its_partitions(tmp_path):
    frames = pytest.importorskip("dask.dataframe")
    whole = pd.DataFrame({"a": [None, None, "u", "v"] * 5, "y": [0, 1, 0, 1] * 5}).sort_values("a")
    lazy = frames.from_map(lambda part: whole.iloc[10 * part : 10 * part + 10], [1, 0], meta=whole)
    ingest(lazy, tmp_path / "d", label_column="y", na="-1", shuffle=False)
    assert open_dataset(tmp_path / "d").feature_names() == ["a=-1", "a=u", "a=v"]


@pytest.mark.parametrize(("most", "times"), [(2**20, 1), (0, 3)])
def test_small_dask_frames_are_computed_once(tmp_path, monkeypatch, most, times):
    dask, frames = pytest.importorskip("dask"), pytest.importorskip("dask.dataframe")
    monkeypatch.setattr("distls.ingestion.formats.dask_arrays._MOST_KEPT", most, raising=False)
    whole, computed = people(), tmp_path / "computed"

    def part(start):
        with computed.open("a") as file:
            print(start, file=file)
        return whole.iloc[start : start + 60]

    lazy = frames.from_map(part, [0, 60], meta=whole)
    with dask.config.set(scheduler="synchronous"):
        ingest(lazy, tmp_path / "lazy", **OPTIONS)
    assert sorted(computed.read_text().split()) == sorted(["0", "60"] * times)
    ingest(whole, tmp_path / "whole", shuffle=False, **OPTIONS)
    assert open_dataset(tmp_path / "lazy").feature_names() == open_dataset(tmp_path / "whole").feature_names()


def test_documents_in_a_column(tmp_path):
    frame = pd.DataFrame({"text": ["good day", "bad night", "good night"] * 9, "label": ["a", "b", "a"] * 9})
    frame.to_parquet(tmp_path / "a.parquet")
    ingest(tmp_path / "a.parquet", tmp_path / "file", text_column="text")
    ingest(frame, tmp_path / "frame", text_column="text")
    assert stored(tmp_path / "frame") == stored(tmp_path / "file")


def test_more_rows_are_read_like_others(tmp_path):
    frame = people()
    ingest(frame, tmp_path / "d", **OPTIONS)
    columns = list(frame.columns[::-1])
    ingest(frame[columns], tmp_path / "e", like=tmp_path / "d", shuffle=False)
    frame.to_csv(tmp_path / "a.csv", index=False, na_rep="")
    ingest(tmp_path / "a.csv", tmp_path / "f", like=tmp_path / "d", shuffle=False)
    found, wanted = (stored(tmp_path / name) for name in ("e", "f"))
    assert found[2] == wanted[2]
    # data without names take frames as arrays
    x = np.random.default_rng(1).standard_normal((30, 3))
    ingest(x, tmp_path / "g", y=np.arange(30) % 2)
    ingest(pd.DataFrame(x), tmp_path / "h", y=np.arange(30) % 2, like=tmp_path / "g")
    assert open_dataset(tmp_path / "h").meta.n_rows == 30


@pytest.mark.fast_cases("<lambda>-options0", "<lambda>-options4", "<lambda>-options7", "<lambda>-options11")
@pytest.mark.parametrize(
    ("change", "options", "error", "words"),
    [
        (lambda f: f, {}, BadInputError, r'X: name the column of labels .*; there are "age"'),
        (lambda f: f, {"label_column": "nix"}, ParameterError, 'X has no column "nix"; it has "age"'),
        (lambda f: f, {"label_column": "label"}, BadInputError, r'X, row \d+: column "visits": the value is miss'),
        (lambda f: f, {"label_column": "label", "y": [0] * 120}, ParameterError, "y and label_column exclude"),
        (lambda f: f, {"label_column": "label", "format": "csv"}, ParameterError, "format=csv is for files"),
        (lambda f: f, {"y": [0] * 7, "na": "0"}, BadInputError, "y: 7 .*120 rows of X"),
        (lambda f: f, {"label_column": "label", "labels": "a"}, BadInputError, "a: no such file"),
        (lambda f: pd.concat([f, f], axis=1), {"label_column": "label"}, BadInputError, "two columns have one"),
        (lambda f: f.assign(o=[{}, 1] * 60), {"label_column": "label"}, BadInputError, 'X: column "o": '),
        (lambda f: f.assign(d=[{"a": 1}] * len(f)), {"label_column": "label"}, BadInputError, '"d" is of type struct'),
        (lambda f: in_polars(f).lazy(), {"label_column": "label"}, BadInputError, r"a lazy frame; give X.coll"),
        (
            lambda f: f[["age", "label"]][:0].astype({"label": float}),
            {"label_column": "label"},
            BadInputError,
            "X: no rows",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path, change, options, error, words):
    with pytest.raises(error, match=words) as caught:
        ingest(change(people()), tmp_path / "d", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "d").exists()


def test_a_frame_of_other_columns_is_refused(tmp_path):
    ingest(people(), tmp_path / "d", **OPTIONS)
    with pytest.raises(MismatchError, match='X: no column "city", which is a feature of'):
        ingest(people().drop(columns="city"), tmp_path / "e", like=tmp_path / "d")


def test_columns_of_another_byte_order_are_numbers(tmp_path):
    frame = pd.DataFrame({"x": np.arange(40.0).astype(">f8"), "y": np.arange(40, dtype=">i4") % 2})
    ingest(frame, tmp_path / "other", label_column="y")
    ingest(frame.astype({"x": "float64", "y": "int32"}), tmp_path / "own", label_column="y")
    other, own = open_dataset(tmp_path / "other"), open_dataset(tmp_path / "own")
    assert (other.fingerprint, other.meta.classes) == (own.fingerprint, own.meta.classes)


def test_truths_beside_another_label_are_words(tmp_path):
    rows = [(number, number % 3, "true" if number % 2 else "false") for number in range(40)]
    pd.DataFrame(rows, columns=["a", "b", "label"]).to_csv(tmp_path / "train.csv", index=False)
    given = [(a, b, "unknown" if a == 0 else label.title()) for a, b, label in rows]
    pd.DataFrame(given, columns=["a", "b", "label"]).to_csv(tmp_path / "test.csv", index=False)
    for name, like in (("train", None), ("test", tmp_path / "train")):
        ingest(tmp_path / f"{name}.csv", tmp_path / name, label_column="label", like=like)
    meta = open_dataset(tmp_path / "test").meta
    found = dict(zip(meta.classes, meta.label_counts, strict=True))
    assert found == {"false": 0, "true": 0, "False": 19, "True": 20, "unknown": 1}


def test_intervals_and_periods_are_read_as_their_texts(tmp_path):
    """Columns of `pandas.cut` and months are categories; what has no such text is named with its type."""
    frame = pd.DataFrame({"cut": pd.cut(range(24), 4), "month": pd.period_range("2022-01", periods=24, freq="M")})
    frame.loc[3, "cut"] = None
    frame["y"] = [0, 1] * 12
    texts = frame.assign(cut=pd.Categorical(frame["cut"].astype(object).map(str, na_action="ignore")))
    texts["month"] = frame["month"].astype(str)
    for name, given in (("a", frame), ("b", texts)):
        ingest(given, tmp_path / name, label_column="y", impute="category", shuffle=False)
    assert stored(tmp_path / "a")[1:] == stored(tmp_path / "b")[1:]
    names = open_dataset(tmp_path / "a").feature_names()
    assert "cut=(5.75, 11.5]" in names
    a, b = (read_all(tmp_path / name)[0] for name in "ab")
    assert np.array_equal(a, b)
    with pytest.raises(BadInputError, match='column "z": of a type that is not read, complex128'):
        ingest(frame.assign(z=1j), tmp_path / "c", label_column="y")
