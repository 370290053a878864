"""Mixed tables: kinds of columns, what they become, and missing values."""

import datetime
import json

import numpy as np
import pandas as pd
import pytest
from helpers import refuses

import distls
from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, ParameterError
from distls.testing.formats import read_all
from distls.workers.ingestion.formats.mixed_columns import date_parts, date_style, utc_offsets

pytest.importorskip("pyarrow")
N = 120
OPTIONS = {"label_column": "y", "shuffle": False}


def frame(n=N, seed=0):
    rng = np.random.default_rng(seed)
    words = np.array(["the", "rain", "fell", "on", "this", "long", "and", "quiet", "road", "again"])
    return pd.DataFrame(
        {
            "user_id": rng.permutation(1000)[:n],
            "x": np.where(rng.random(n) < 0.2, np.nan, np.round(rng.normal(5, 2, n), 2)),
            "when": (np.datetime64("2020-01-01") + rng.integers(0, 900, n)).astype(str),
            "city": [["Ulm", "Bonn", "Kiel"][k] for k in rng.integers(0, 3, n)],
            "tags": ["|".join(rng.choice(["a", "b", "c"], 2, False)) for _ in range(n)],
            "note": [" ".join(rng.choice(words, 6)) + f" n{k}" for k in range(n)],
            "y": rng.integers(0, 2, n),
        }
    )


def read(source, folder, **options):
    report = ingest(source, folder, **{**OPTIONS, **options})
    data = open_dataset(folder)
    names = data.feature_names()
    x = read_all(data)[0]
    return report, {name: x[:, k] for k, name in enumerate(names)}, data


def csv_of(table, folder, name="a.csv"):
    table.to_csv(folder / name, index=False)
    return folder / name


def test_each_kind_has_its_features(tmp_path):
    table = frame()
    report, found, data = read(csv_of(table, tmp_path), tmp_path / "d", impute="median+indicator")
    assert any('"when" is dates; "tags" is sets; "note" is documents' in notice for notice in report.notices)
    assert any('"user_id" has another value in each of the first rows' in notice for notice in report.notices)
    assert [*found][:7] == [
        "x", "when[days]", *(f"when[{p} {f}]" for p in ("year", "week") for f in ("sin", "cos")), "city=Bonn",
    ]  # fmt: skip
    assert not any(name.startswith("user_id") for name in found)
    days = (pd.to_datetime(table["when"]) - pd.Timestamp("2000-01-01")).dt.days
    assert np.array_equal(found["when[days]"], days.astype(np.float32))
    assert np.array_equal(found["tags=a"], table["tags"].str.contains("a").astype(np.float32))
    # the words of all documents, by their hashes
    total = sum(column.sum() for name, column in found.items() if name.startswith("note"))
    assert total == sum(len(set(note.split())) > 0 and len(note.split()) for note in table["note"])
    filled = table["x"].fillna(np.float32(table["x"].median()))
    assert np.array_equal(found["x"], filled.astype(np.float32))
    assert np.array_equal(found["x[missing]"], table["x"].isna().astype(np.float32))
    assert data.meta.source["recipe"]["id_column"] == "user_id"


@pytest.mark.fast_cases("plain")
@pytest.mark.parametrize("note", ["plain {}", 'two\nlines, "{}"'])
def test_ranges_of_a_file_have_its_rows(tmp_path, monkeypatch, note):
    table = frame()
    table["note"] = [note.format(k) for k in range(N)]
    path = csv_of(table, tmp_path)
    wrong = csv_of(table.assign(x=[*table["x"][:-1].astype(str), "1.5.2"]), tmp_path, "b.csv")
    options = {"impute": "median", "kind": ["note=text"], "id_column": "user_id"}
    whole = read(path, tmp_path / "whole", **options)
    with pytest.raises(BadInputError) as of_whole:
        read(wrong, tmp_path / "wrong", like=tmp_path / "whole")
    monkeypatch.setattr("distls.ingestion.request.source_plan.RANGE_BYTES", 700)
    ranges = read(path, tmp_path / "ranges", **options)
    assert ranges[0].notices == whole[0].notices
    assert [*ranges[1]] == [*whole[1]]
    assert all(np.array_equal(ranges[1][name], whole[1][name]) for name in whole[1])
    sources, own = (data.origins.read(0) for data in (ranges[2], whole[2]))
    assert sources.rows.tolist() == own.rows.tolist() == [*range(N)]
    assert sources.ids.texts() == own.ids.texts() == table["user_id"].astype(str).tolist()
    # the line of a row is that of the file
    with pytest.raises(BadInputError) as of_ranges:
        read(wrong, tmp_path / "wrong-ranges", like=tmp_path / "whole")
    line = path.read_text().count("\n") - note.count("\n")
    assert f"b.csv:{line}: " in str(of_ranges.value)
    assert str(of_ranges.value).partition(";")[0] == str(of_whole.value).partition(";")[0]


def test_every_source_gives_the_same_rows(tmp_path):
    table = frame()
    table["tags"] = [value.split("|") for value in table["tags"]]
    expected = read(table, tmp_path / "frame", transform="auto")[2]
    table.to_parquet(tmp_path / "a.parquet", index=False)
    lines = (json.dumps({n: None if v != v else v for n, v in row.items()}) for row in table.to_dict("records"))
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    joined = table.assign(tags=["|".join(value) for value in table["tags"]], note=table["note"] + "\nend")
    for name, source in (("p", tmp_path / "a.parquet"), ("j", tmp_path / "a.jsonl")):
        data = read(source, tmp_path / name, transform="auto")[2]
        assert np.array_equal(read_all(data)[0], read_all(expected)[0])
    # a quoted field may have line breaks
    assert read(csv_of(joined, tmp_path), tmp_path / "c", transform="auto")[2].meta.n_rows == N


@pytest.mark.parametrize("strategy", ["median", "mean", "most_frequent", "constant:7"])
def test_missing_numbers_become_what_is_asked(tmp_path, strategy, monkeypatch):
    values = np.round(np.random.default_rng(1).normal(0, 3, 201), 1)
    values[::7] = np.nan
    table = pd.DataFrame({"a": values, "b": np.arange(201.0) / 8, "y": np.arange(201) % 2})
    known = values[~np.isnan(values)].astype(np.float32)
    counted, counts = np.unique(known, return_counts=True)
    wanted = {
        "median": np.median(known), "mean": known.mean(dtype=float), "most_frequent": counted[counts.argmax()],
        "constant:7": 7.0,
    }[strategy]  # fmt: skip
    for name, source in (("csv", csv_of(table, tmp_path)), ("frame", table)):
        report, found, _ = read(source, tmp_path / name, impute=strategy)
        assert np.allclose(found["a"][::7], np.float32(wanted), rtol=1e-6, atol=0)
        assert [*found] == ["a", "b"]
        assert any('"a" (29 rows' in notice for notice in report.notices)


def test_missing_categories_are_one_of_their_own_or_another(tmp_path):
    table = pd.DataFrame({"c": ["u", None, "v", "u", None, "u"] * 4, "y": [0, 1] * 12})
    path = csv_of(table, tmp_path)
    found = read(path, tmp_path / "own", impute="category")[1]
    assert [*found] == ["c=", "c=u", "c=v"]
    assert found["c="].sum() == 8
    found = read(path, tmp_path / "often", impute={"c": "most_frequent"})[1]
    assert found["c=u"].sum() == 20
    assert found["c="].sum() == 0
    assert read(path, tmp_path / "const", impute="constant:w")[1]["c=w"].sum() == 8
    refuses(BadInputError, "missing", ingest, path, tmp_path / "refused", **OPTIONS)


def test_a_model_imputes_what_it_is_given(tmp_path):
    table = frame()
    distls.train(
        csv_of(table, tmp_path), tmp_path / "m", label_column="y", method="gls", params={"alpha": 0.1},
        notify=lambda _: None,
    )  # fmt: skip
    model = distls.load_model(tmp_path / "m")
    rows = table.drop(columns="y").iloc[:5]
    expected = model.predict_proba(rows)
    median = float(np.median(table["x"].dropna().astype(np.float32)))
    known = rows.assign(x=median)
    assert not np.array_equal(model.predict_proba(known), expected)  # it knows where a value was missing
    assert np.array_equal(model.predict_proba(rows[rows.columns[::-1]]), expected)
    assert np.array_equal(model.predict_proba(rows.to_dict("records")), expected)
    refuses(ParameterError, "holds dates", distls.export, tmp_path / "m", tmp_path / "m.onnx", to="onnx")


@pytest.mark.fast_cases(
    r"2000-01-02-1\.0", "20000102", "Sun,", r"2000-01-02T12:00:00\+01", "2/Jan/2000", r"2000-01-02 12:00:00\+05",
)  # fmt: skip
@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("2000-02", 31.0), ("2000Q2", 91.0), ("2000-W02", 9.0),
        ("2000-01-02", 1.0), ("2.1.2000", 1.0), ("1/2/2000", 1.0), ("2000-01-02T12:00:00Z", 1.5), ("20000102", 1.0),
        ("1/2/2000 12:00 PM", 1.5), ("1/2/2000, 12:00:00 a.m.", 1.0), ("Jan 2, 2000 6:00pm", 1.75),
        ("Sun, 2 Jan 2000 12:00:00 GMT", 1.5), ("2000-01-02 12:00:00+00", 1.5), ("2000-01-02 12:00:00.0-0330", 1.5),
        ("2000-01-02T12:00:00+01:00[Europe/Berlin]", 1.5), ("2000-01-02 12:00 America/Port-au-Prince", 1.5),
        ("2000-01-02 12:00 PM EST", 1.5), ("2000-01-02 12:00:00 Etc/GMT+5", 1.5), ("2/Jan/2000:12:00:00 +0100", 1.5),
        ("Sun Jan 02 2000 12:00:00 GMT+0100 (Central European Time)", 1.5), ("Sun Jan  2 12:00:00 CET 2000", 1.5),
        ("Sun Jan 02 12:00:00 +0000 2000", 1.5), ("2000-01-02 12:00:00+05:30:00", 1.5),
    ],
)  # fmt: skip
def test_dates_as_they_are_written(text, days):
    assert date_parts(text, date_style([text]))[0] == days


@pytest.mark.fast_cases("2000-01-02 25", "10", "2000-01-02 12:00 in")
@pytest.mark.parametrize(
    "text",
    [
        "2000-01-02 25:00", "1/2/2000 13:00 PM", "2000-01-02 10:61", "20001301", "10:61", "2000-01-02 EST",
        "2000-01-02 12:00 noon", "2000-01-02 12:00 in Berlin",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_date(text):
    assert date_parts(text, date_style([text])) is None


WRITTEN = {
    "9:30": ([f"{k % 24}:{k % 60:02}" for k in range(48)], "c[day sin]", 0.0),
    "6:00 AM": ([f"{6 + k % 5}:00 AM" for k in range(48)], "c[day sin]", 1.0),
    "time": ([datetime.time(k % 24, k % 60) for k in range(48)], "c[day cos]", 1.0),
    "30:24": ([f"{k + 1}:{k % 60:02}" for k in range(48)], "c[seconds]", 60.0),
    "1 day": ([f"{k} days 0:01:{k % 60:02}.5" for k in range(48)], "c[seconds]", 60.5),
    "PT1H": ([f"PT{k % 24}H{k % 60}M1.5S" for k in range(48)], "c[seconds]", 1.5),
    "12,50 €": ([f"{k},50 €" for k in range(48)], "c", 0.5),
    "1 234": ([f"{k + 1} {k:03}" for k in range(48)], "c", 1000.0),
    "1\u202f234,5": ([f"{k + 1}\u202f{k:03},5" for k in range(48)], "c", 1000.5),
    "json": ([json.dumps(["a", f"b {k % 5}"]) for k in range(48)], "c=b 0", 1.0),
    "python": ([str(["it's", f"b {k % 5}"]) for k in range(48)], "c=it's", 1.0),
    "list": ([["a", f"b {k % 5}"] for k in range(48)], "c=a", 1.0),
}


@pytest.mark.fast_cases("9:30$", "30:24$", "1\\\\u202f234,5$", "list$")
@pytest.mark.parametrize("name", WRITTEN)
def test_a_column_is_the_same_in_every_file(tmp_path, name):
    column, feature, first = WRITTEN[name]
    table = pd.DataFrame({"c": column, "x": np.arange(48) % 7 + 0.5, "y": np.arange(48) % 2})
    expected = read(table, tmp_path / "frame")[1]
    assert expected[feature][0] == np.float32(first)
    assert not any(name.startswith("c=") for name in expected) or len(expected) == 1 + 6
    table.to_parquet(tmp_path / "a.parquet", index=False)
    (tmp_path / "a.jsonl").write_text(table.to_json(orient="records", lines=True, default_handler=str))
    for source in (csv_of(table, tmp_path), tmp_path / "a.parquet", tmp_path / "a.jsonl"):
        for options in ({"format": source.suffix[1:]}, {"like": tmp_path / "frame"}):
            found = read(source, tmp_path / f"{source.suffix}{[*options]}", **options)[1]
            assert {n: v.tolist() for n, v in found.items()} == {n: v.tolist() for n, v in expected.items()}


@pytest.mark.slow_cases("csv", "parquet")
@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_lengths_of_time_are_seconds(tmp_path, kind):
    seconds = np.arange(24) * 3661
    table = pd.DataFrame({"c": pd.to_timedelta(seconds, unit="s"), "x": seconds % 7 / 2, "y": [0, 1] * 12})
    table.to_parquet(tmp_path / "a.parquet", index=False)
    source = {"frame": table, "csv": csv_of(table, tmp_path), "parquet": tmp_path / "a.parquet"}[kind]
    assert read(source, tmp_path / "d")[1]["c[seconds]"].tolist() == seconds.tolist()


def test_times_of_day_may_be_lengths_of_time(tmp_path):
    table = pd.DataFrame({"c": [f"{k % 9}:{k:02}" for k in range(48)], "y": [0, 1] * 24})
    report = ingest(table, tmp_path / "a", label_column="y")
    assert "NAME=duration: lengths of time" in report.notices[0]
    found = read(table, tmp_path / "d", kind="c=duration")[1]
    assert found["c[seconds]"].tolist() == [60 * (k % 9) + k for k in range(48)]


def test_times_of_several_zones_are_named(tmp_path):
    table = pd.DataFrame({"c": [f"2018-01-04 09:0{k}:00+0{k % 2}:00" for k in range(8)], "y": [0, 1] * 4})
    assert any("zones, +00:00, +01:00, and" in n for n in ingest(table, tmp_path / "a", label_column="y").notices)
    zones = [
        "Z", "+0100", "+00", " UTC", " UTC-3", " PM EST", "+01:00[Europe/Paris]", " GMT+0100 (CET)", " Asia/Tokyo",
    ]  # fmt: skip
    assert utc_offsets([f"2018-01-04 09:00:00{zone}" for zone in zones]) == [
        "+00:00", "+01:00", "-03:00", "Asia/Tokyo", "EST",
    ]  # fmt: skip
    assert utc_offsets(["Thu Jan  4 09:00:00 EST 2018"]) == ["EST"]
    assert utc_offsets(["1/31/2024 9:30 PM", "1/31/2024 9:30 AM", "1/31/2024 9:30AM"]) == []
    assert utc_offsets(["1/31/2024 9:30 PM EST", "1/31/2024 9:30 AMT"]) == ["AMT", "EST"]


@pytest.mark.parametrize("form", ["{h}h {m}m", "{h} hr, {m} min", "{h}h{m}m0s", "PT{h}H{m}M"])
def test_lengths_of_time_with_units_are_seconds(tmp_path, form):
    texts = [form.format(h=k % 5, m=7 * k % 60) for k in range(48)]
    table = pd.DataFrame({"c": texts, "y": [0, 1] * 24})
    report = ingest(csv_of(table, tmp_path), tmp_path / "a", label_column="y")
    assert '"c" is lengths of time, in seconds; --kind NAME=KIND' in report.notices[0]
    expected = [3600 * (k % 5) + 60 * (7 * k % 60) for k in range(48)]
    assert read(table, tmp_path / "d")[1]["c[seconds]"].tolist() == expected


@pytest.mark.parametrize(
    ("text", "seconds"), [("90 min", 5400), ("1.5h", 5400), ("2 days 4 hours", 187_200), ("1 Day", 86_400), ("45s", 45)]
)
def test_units_of_time(text, seconds):
    assert date_parts(text, "duration") == (seconds,)


def test_other_units_are_no_lengths_of_time():
    for text in ("5M", "12", "h", "30m 1h", "1hm", "4k", "5 meters"):
        assert date_parts(text, "duration") is None, text


def test_months_have_no_length():
    assert [date_parts(text, "duration") for text in ("PT5M", "P1DT1H", "P1M", "P1H", "P")] == [
        (300.0,), (90_000.0,), None, None, None
    ]  # fmt: skip


def test_a_column_of_times_of_day_says_how_it_would_be_lengths(tmp_path):
    table = pd.DataFrame({"c": [f"{k % 9}:{k % 60:02}" for k in range(600)] + ["30:24"], "y": [0] + [0, 1] * 300})
    refuses(BadInputError, r"30:24.*NAME=duration of ingest and train", ingest, table, tmp_path / "a", label_column="y")
    refuses(ParameterError, "c=duration:dmy", ingest, table, tmp_path / "b", label_column="y", kind="c=duration:dmy")


def test_documents_beside_other_columns_have_the_width_that_is_asked(tmp_path):
    table = pd.DataFrame({"note": [f"some words and {k}" for k in range(8)], "x": range(8), "y": [0, 1] * 4})
    for name, source in (("csv", csv_of(table, tmp_path)), ("frame", table)):
        _, columns, data = read(source, tmp_path / name, kind="note=text", n_features=32)
        assert [*columns] == ["x", *(f"note[{k}]" for k in range(32))]
        assert data.meta.n_features == 33


def test_arrays_that_numpy_writes_are_no_sets(tmp_path):
    table = pd.DataFrame({"c": [f"['a' 'b{k % 2}']" for k in range(8)], "y": [0, 1] * 4})
    assert [*read(csv_of(table, tmp_path), tmp_path / "d")[1]] == ["c=['a' 'b0']", "c=['a' 'b1']"]


def test_what_is_no_date_is_named_with_its_line(tmp_path):
    table = frame(600)
    table.loc[550, "when"] = "soon"
    with pytest.raises(BadInputError, match=r'a.csv:552: column "when": "soon": expected a date'):
        ingest(csv_of(table, tmp_path), tmp_path / "d", **OPTIONS, impute="median")


@pytest.mark.fast_cases("options0", "options2", "options5")
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"kind": "x=colour"}, "kind is NAME=KIND"),
        ({"kind": "z=text"}, 'kind: .* no column "z"'),
        ({"impute": "x=guess"}, "impute is one of median"),
        ({"impute": "note2=mean"}, 'no column "note2"'),
        ({"impute": {"city": "mean"}}, "has categories"),
        ({"impute": "median", "na": 0}, "exclude each other"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, options, match):
    with pytest.raises(ParameterError, match=match):
        ingest(csv_of(frame(), tmp_path), tmp_path / "d", **OPTIONS, **options)


def test_declared_kinds_win(tmp_path):
    kinds = {"user_id": "number", "when": "category", "note": "ignore", "tags": "category"}
    _, found, _ = read(csv_of(frame(), tmp_path), tmp_path / "d", kind=kinds, impute="median")
    assert "user_id" in found
    assert not any(name.startswith("note") for name in found)
    assert any(name.startswith("when=2020") for name in found)


def test_info_has_all_columns_as_one_table(tmp_path):
    table = frame().assign(answer=[f"and then {k} words of it all" for k in range(N)], z=np.linspace(0, 1, N))
    table = table.assign(w=np.arange(N) % 3 + 1.0)
    kinds = ("note=text", "answer=text")
    options = {"label_column": "y,z", "weight_column": "w", "kind": kinds, "transform": "auto"}
    ingest(csv_of(table, tmp_path), tmp_path / "d", **options, impute="median+indicator")
    dates, words = "date of 5 features; missing: median; standardize", "log1p, idf, l2norm"
    assert distls.info(tmp_path / "d")["table"] == {
        "y": "label", "z": "label", "w": "weight", "user_id": "id",
        "x": "number; missing: median+indicator; standardize", "when": dates,
        "city": f"category of 3 features; missing: most_frequent:{table['city'].mode()[0]}",
        "tags": "set of 3 features",
        "note": f"text of 4,096 features; {words}", "answer": f"text of 4,096 features; {words}",
    }  # fmt: skip
    # a run and its model say the same
    distls.fit("gls", tmp_path / "d", tmp_path / "run", params={"alpha": 0.1})
    tables = [distls.info(tmp_path / name)["table"] for name in ("d", "run", "run/model")]
    assert tables[1:] == tables[:1] * 2


@pytest.mark.parametrize(
    "pair", [("Paris", "paris"), ("N A 1", "N  A 1"), ("caf\u00e9", "cafe\u0301"), ("x", "\ufeffx")]
)
def test_categories_that_look_alike_are_named(tmp_path, pair):
    """Spellings of one value, the decomposed letters of a Mac, and the mark where files were joined."""
    table = pd.DataFrame({"a": np.arange(12), "c": [(*pair, "other")[k % 3] for k in range(12)], "y": [0, 1] * 6})
    report, found, _ = read(csv_of(table, tmp_path), tmp_path / "d", kind="a=number")
    assert len(found) == 4
    (named,) = [notice for notice in report.notices if "are different categories" in notice]
    first, second = sorted(pair)
    assert named.startswith('column "c": ')
    assert named.endswith(f': "{first}" and "{second}"')


@pytest.mark.parametrize(
    "written",
    [
        lambda v: f"{v:g}".replace("-", "\u2212"),
        lambda v: f"{v:.3E}".replace("E", "D"),
        lambda v: f"{1000 * v:,.2f}D-03",
    ],
)
def test_signs_of_spreadsheets_and_exponents_of_fortran_are_numbers(tmp_path, written):
    values, y = np.arange(-6.0, 6.0) * 1.25, [0, 1] * 6
    table = pd.DataFrame({"a": [written(v) for v in values], "y": y})
    report, found, _ = read(csv_of(table, tmp_path), tmp_path / "d")
    assert {name: column.tolist() for name, column in found.items()} == {"a": values.tolist()}
    assert any('"a" is numbers with marks' in notice for notice in report.notices)
    # names are none
    for k, name in enumerate(("{}D0", "{}.0D4")):
        names = pd.DataFrame({"a": [name.format(k % 3) for k in range(12)], "y": y})
        assert next(iter(read(csv_of(names, tmp_path), tmp_path / f"b{k}")[1])) == f"a={name.format(0)}"


@pytest.mark.parametrize("options", [{}, {"id_column": "key"}, {"weight_column": "w"}], ids=["plain", "id", "weight"])
def test_records_without_documents_are_tables(tmp_path, options):
    """A key that is a text of digits stays one; one word alone is a document without a known name."""
    rows = [{"key": f"13448001175712604{k}", "w": k + 0.5, "n": k, "y": k % 2} for k in range(10, 22)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, found, data = read(tmp_path / "a.jsonl", tmp_path / "d", **options)
    assert found["n"].tolist() == list(range(10, 22))
    assert data.meta.weighted == ("weight_column" in options)
    keys = [name for name in data.feature_names() if name.startswith("key=")]
    assert keys == ([] if "id_column" in options else [f"key={row['key']}" for row in rows])
    (tmp_path / "b.jsonl").write_text(
        "".join(json.dumps({"say": f"this is a text of {k} words", "y": k % 2}) + "\n" for k in range(9))
    )
    refuses(BadInputError, "name one with --text-column", read, tmp_path / "b.jsonl", tmp_path / "e")


def test_the_header_of_a_joined_file_is_no_row(tmp_path):
    rows = "".join(f"{k},{'uv'[k % 2]},{k % 2}\n" for k in range(12))
    (tmp_path / "a.csv").write_text(f"\ufeffa,c,y\n{rows}" * 2, encoding="utf-8")
    with pytest.raises(BadInputError, match=r"a\.csv:14: the line has the names of columns once more"):
        read(tmp_path / "a.csv", tmp_path / "d")
