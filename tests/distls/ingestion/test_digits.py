"""No two different values of a column, and no two labels, become one without a word, whatever the source."""

import re
from decimal import Decimal

import numpy as np
import pytest
import scipy.sparse as sp

from distls import evaluate, fit, ingest, load_model, open_dataset

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

KINDS = ("array", "frame", "csv", "parquet", "npz", "npy", "svm", "sparse")
N = 60
SECONDS = 1_700_000_000 + np.arange(N)
DAYS = 20_240_101 + np.arange(N) % 30
JULIAN = 2_460_310.5 + np.arange(N) / 1440
Y = (np.arange(N) >= N // 2).astype(int)


def source(folder, kind, x, y):
    """Write rows as a source; return it, and the options that read it."""
    frame = pd.DataFrame(x, columns=[f"c{j}" for j in range(x.shape[1])])
    if len({column.dtype for _, column in frame.items()}) == 1 and np.all(x == np.floor(x)):
        frame = frame.astype(np.int64)
    frame["y"] = y
    path = folder / f"a.{kind}"
    if kind in ("array", "sparse"):
        return (sp.csr_matrix(x) if kind == "sparse" else x), {"y": y}
    if kind == "frame":
        return frame, {"label_column": "y"}
    if kind == "csv":
        frame.to_csv(path, index=False)
        return path, {"label_column": "y"}
    if kind == "parquet":
        frame.to_parquet(path)
        return path, {"label_column": "y"}
    if kind == "npz":
        np.savez(path, X=x, y=y)
        return path, {}
    if kind == "npy":
        np.save(path, x)
        np.save(folder / "y.npy", y)
        return path, {"labels": folder / "y.npy"}
    rows = (" ".join(f"{j}:{v!r}" for j, v in enumerate(row)) for row in x.tolist())
    path.write_text("".join(f"{label} {row}\n" for label, row in zip(y.tolist(), rows, strict=True)))
    return path, {}


def distinct(path):
    return [len(set(column.tolist())) for column in open_dataset(path).read(0).x.values.T]


@pytest.mark.fast_cases("array$")
@pytest.mark.parametrize("kind", KINDS)
def test_values_that_float32_makes_equal_are_named_with_the_remedy(tmp_path, kind):
    given, options = source(tmp_path, kind, np.column_stack([SECONDS, np.arange(N)]).astype(float), Y)
    (notice,) = ingest(given, tmp_path / "d", **options).notices
    assert "equal in float32" in notice
    assert "--dtype float64" in notice
    # of one of the two, where only that is known, what it is read as
    a, b = map(float, re.search(r"such as (\S+)(?: and |, which is read as )(\S+);", notice).groups())
    assert a != b
    assert {a, b} < set(SECONDS)
    assert np.float32(a) == np.float32(b)
    assert ('"c0"' if kind in ("frame", "csv", "parquet") else '"0"') in notice
    assert ingest(given, tmp_path / "wide", **options, dtype="float64").notices == ()


@pytest.mark.slow_cases("days", "julian-[^a]", "seconds-(array|frame|np|parquet)")
@pytest.mark.parametrize("kind", KINDS[:-2])
@pytest.mark.parametrize("column", [SECONDS, DAYS, JULIAN], ids=["seconds", "days", "julian"])
def test_what_is_centred_keeps_its_values_and_predicts_alike_from_every_source(tmp_path, kind, column):
    x = np.column_stack([column, np.arange(N)]).astype(float)
    given, options = source(tmp_path, kind, x, Y)
    notices = ingest(given, tmp_path / "d", **options, transform="standardize").notices
    assert not [notice for notice in notices if "float32" in notice]
    assert distinct(tmp_path / "d")[0] == len(set(column.tolist()))
    fit("gls", tmp_path / "d", tmp_path / "run", params={"alpha": 0.001})
    model = load_model(tmp_path / "run")
    kinds = (x, x[:2], pd.DataFrame(x, columns=["c0", "c1"]) if kind in ("frame", "csv") else x)
    assert all(np.array_equal(model.predict(rows), model.predict(x)[: len(rows)]) for rows in kinds)
    if column is not DAYS:
        assert np.array_equal(model.predict(x), Y)
        # of files too, whose rows are staged again
        if kind in ("csv", "parquet", "npz"):
            assert evaluate(tmp_path / "run", given).error == 0.0


@pytest.mark.parametrize("kind", ["csv", "array"])
def test_an_outlier_hides_no_values_that_become_equal(tmp_path, kind):
    near = [[*JULIAN[:-1], 9999999.9], 1_700_000_000.5 + np.r_[np.arange(N - 1), 9e9], [1e-60, *np.arange(N - 1) / 8]]
    sums = np.r_[0.1 + 0.2, 0.3, np.arange(N - 2) / 10]  # the last digit of a sum is no value
    given, options = source(tmp_path, kind, np.column_stack([*near, np.arange(N) / 7, sums]), Y)
    (notice,) = ingest(given, tmp_path / "d", **options).notices
    assert "become equal in float32" in notice
    assert [f'"{name}"' in notice for name in ("01234" if kind == "array" else ("c0", "c1", "c2", "c3", "c4"))] == [
        True, True, False, False, False]  # fmt: skip


@pytest.mark.fast_cases("float32-csv", "float64-array")
@pytest.mark.parametrize("kind", ["csv", "npy", "array"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_that_an_outlier_merges_once_centred_are_named(tmp_path, kind, dtype):
    x = np.column_stack([[*np.arange(N - 1) % 2, 2.0**60], [*np.arange(N - 1) % 2 / 8, 1e9], np.arange(N)])
    given, options = source(tmp_path, kind, x, Y)
    notices = ingest(given, tmp_path / "d", **options, transform="standardize", dtype=dtype).notices
    found = [notice for notice in notices if "become equal once transformed" in notice]
    assert any("in float64 too, such as 0 and 1" in notice for notice in found)
    assert any("in float32, such as 0 and 0.125" in notice for notice in found) == (dtype == "float32")
    # each partition knows its own rows
    x = np.repeat([0.0, 1.0, 2.0**70], [4000, 4000, 1])[:, None]
    (notice,) = ingest(x, tmp_path / "e", y=np.arange(8001) % 2, transform="standardize", dtype=dtype,
                       shuffle=False, partition_size=4096).notices  # fmt: skip
    assert "such as 0 and 1" in notice
    assert ingest(x, tmp_path / "f", y=np.arange(8001) % 2, dtype=dtype).notices == ()


def test_numbers_of_one_scale_are_read_as_before(tmp_path):
    x = np.random.default_rng(0).normal(3, 1, (200, 3)).round(4)
    given, options = source(tmp_path, "csv", x, np.arange(200) % 2)
    assert ingest(given, tmp_path / "d", **options, transform="standardize").notices == ()
    assert open_dataset(tmp_path / "d").meta.transforms == [{"name": "standardize"}]


def test_an_ingest_that_reads_twice_resumes(tmp_path, monkeypatch):
    import distls.ingestion.run as run

    given, options = source(tmp_path, "csv", np.column_stack([SECONDS, DAYS]).astype(float), Y)
    ingest(given, tmp_path / "whole", **options, transform="auto")
    with monkeypatch.context() as patch:
        patch.setattr(run.transform_fit, "fit_transforms", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ingest(given, tmp_path / "d", **options, transform="auto")
    ingest(given, tmp_path / "d", **options, transform="auto")
    whole, resumed = (open_dataset(tmp_path / name).read(0).x.values for name in ("whole", "d"))
    assert np.array_equal(whole, resumed)


def test_data_of_float64_are_scored_as_such(tmp_path):
    x = np.column_stack([SECONDS, np.ones(N)]).astype(float)
    given, options = source(tmp_path, "csv", x, Y)
    ingest(given, tmp_path / "d", **options, transform="standardize", dtype="float64")
    fit("gls", tmp_path / "d", tmp_path / "run", params={"alpha": 0.001})
    assert evaluate(tmp_path / "run", given).error == 0.0
    assert np.array_equal(load_model(tmp_path / "run").predict(x), Y)


LONG = {
    "merged": [str(2**53 + k) for k in range(20)],
    "pointed": [f"{2**53 + k}.0" for k in range(20)],
    "longer": [str(10**21 + k) for k in range(20)],
    "kept": [str(2**53 + 2 * k) for k in range(20)],
    "printed": [f"{2.0**60 + k * 2**10:.1f}" for k in range(20)],
    "rounded": [f"{10**17 + k}e0" for k in range(20)],
}


def long_source(folder, kind, texts):
    """Write numbers as a source; return it, and the options that read it."""
    y = [k % 2 for k in range(len(texts))]
    path = folder / f"a.{kind}"
    if kind in ("array", "sparse", "frame", "parquet"):
        x = np.array([int(text) for text in texts])
        frame = pd.DataFrame({"v": x, "y": y})
        if kind == "parquet":
            frame.to_parquet(path)
        arrays = {"array": x[:, None], "sparse": sp.csr_matrix(x[:, None])}
        given = arrays.get(kind, frame if kind == "frame" else path)
        return given, {"y": y} if kind in arrays else {"label_column": "y"}
    forms = {
        "svm": "{1} 3:{0}\n", "vw": "{1} | v:{0}\n", "csv": "{0},{1}\n", "jsonl": '{{"v": {0}, "y": {1}}}\n',
    }  # fmt: skip
    lines = [forms[kind].format(text, label) for text, label in zip(texts, y, strict=True)]
    # of separated text those behind the first rows, which show the kinds of columns
    first = ["v,y\n", *(f"{k},{k % 2}\n" for k in range(600))] if kind == "csv" else []
    path.write_text("".join([*first, *lines]))
    options = {"csv": {"label_column": "y"}, "jsonl": {"label_column": "y", "na": 0}, "vw": {"hash_bits": 8}}
    return path, options.get(kind, {})


@pytest.mark.fast_cases("svm-merged$", "jsonl-merged$", "array-rounded$")
@pytest.mark.parametrize("numbers", LONG)
@pytest.mark.parametrize("kind", ["svm", "csv", "jsonl", "array", "vw", "frame", "sparse", "parquet"])
def test_numbers_that_float64_makes_equal_are_named_in_any_type(tmp_path, kind, numbers):
    # of typed values these are doubles, or none
    if numbers not in ("merged", "kept") and kind not in ("svm", "csv", "vw"):
        return
    given, options = long_source(tmp_path, kind, LONG[numbers])
    lost = numbers in ("merged", "pointed", "longer")
    for dtype in ("float32", "float64"):
        notices = ingest(given, tmp_path / dtype, **options, dtype=dtype).notices
        found = [notice for notice in notices if "become equal" in notice]
        assert any("equal in float64 too" in notice for notice in found) == lost
        assert any("--dtype float64 keeps" in notice for notice in found) == (dtype == "float32" and not lost)


def test_numbers_with_thousands_and_decimal_commas_are_named_too(tmp_path):
    texts = [f"{2**53 + k:,}".replace(",", ".") for k in range(20)]
    (tmp_path / "a.csv").write_text("v;w;y\n" + "".join(f"{t};1,5;{k % 2}\n" for k, t in enumerate(texts)))
    notices = ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", dtype="float64").notices
    assert "equal in float64 too" in notices[-1]
    frame = pd.DataFrame({"v": [f"{2**53 + k:,}" for k in range(20)], "y": [0, 1] * 10})
    assert "equal in float64 too" in ingest(frame, tmp_path / "e", label_column="y").notices[-1]
    # named as categories they stay themselves
    frame["v"] = [2**53 + k for k in range(20)]
    (notice,) = ingest(frame, tmp_path / "f", label_column="y", kind="v=category").notices
    assert "categorical" in notice
    assert open_dataset(tmp_path / "f").feature_names()[1] == f"v={2**53 + 1}"


@pytest.mark.parametrize("kind", ["csv", "mixed", "parquet"])
def test_fractions_of_more_digits_than_float64_has_are_named(tmp_path, kind):
    lost = [f"0.1234567890123456{k:03}" for k in range(20)]
    printed = [f"{0.1 * k:.25f}" for k in range(20)]
    frame = pd.DataFrame({"v": lost, "w": printed, "u": [repr(k / 7) for k in range(20)], "y": [0, 1] * 10})
    frame["t"] = [f"{k / 10:.1f}{'0' * 20}" for k in range(20)]
    path = tmp_path / "a"
    if kind == "parquet":
        frame[["v", "w", "t"]] = frame[["v", "w", "t"]].map(Decimal)
        frame.loc[3, "t"] = None
        frame.to_parquet(path)
    else:
        frame.assign(**{"d": "2024-01-01"} if kind == "mixed" else {}).to_csv(path, index=False)
    notices = ingest(path, tmp_path / "d", label_column="y", transform="auto", kind="u=number",
                     **{} if kind == "parquet" else {"format": "csv"}).notices  # fmt: skip
    found = [notice for notice in notices if "become equal" in notice]
    assert [[name for name in "tuvw" if f'"{name}"' in notice] for notice in found] == [["v"]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_whole_numbers_of_lists_that_float64_does_not_keep_are_named(tmp_path, dtype):
    frame = pd.DataFrame({"v": [[2**53 + 1 + 2 * k, 1] for k in range(20)], "y": [0, 1] * 10})
    (notice,) = ingest(frame, tmp_path / "d", label_column="y", dtype=dtype).notices
    assert "equal in float64 too" in notice


@pytest.mark.fast_cases("edge-frame$")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "labels",
    [[2**53, 2**53 + 1, 7], [1234567890123456789, 5, -1234567890123456789], [-(2**53), 3]],
    ids=["edge", "beyond", "kept"],
)
def test_labels_of_any_integer_stay_themselves(tmp_path, kind, labels):
    y = np.resize(np.array(labels), N)
    given, options = source(tmp_path, kind, np.arange(2.0 * N).reshape(N, 2) % 7, y)
    ingest(given, tmp_path / "d", **options)
    found = open_dataset(tmp_path / "d").meta
    assert sorted(map(int, found.classes)) == sorted(labels)
    assert [found.label_counts[found.classes.index(type(found.classes[0])(each))] for each in labels] == [
        int((y == each).sum()) for each in labels
    ]
    if kind == "csv":  # such texts are codes, as those with leading zeros
        return
    # numbers to predict are numbers
    ingest(given, tmp_path / "n", **options, target="continuous")
    assert open_dataset(tmp_path / "n").meta.target == "continuous"
