"""Tables as other programs write them, from reports to such programs: spellings, padding, gaps, other shapes."""

import json
import time
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from helpers import refuses
from ingest_helpers import small_ranges  # noqa: F401

import distls
from distls import ingest, open_dataset
from distls.ingestion.formats.column_kinds import FeatureMaker, Samples
from distls.ingestion.request.format_options import TableColumns
from distls.ingestion.request.options import IngestOptions
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.testing.formats import read_all
from distls.workers.ingestion.formats.mixed_columns import date_parts, is_rounded

pytest.importorskip("pyarrow")


def columns_of(source, place, **options):
    report = ingest(source, place, **{"label_column": "y", "shuffle": False} | options)
    data = open_dataset(place)
    return read_all(data)[0].tolist(), data.feature_names(), report.notices


@pytest.mark.parametrize("trained", ["1", "1.0"])
def test_whole_numbers_as_categories_may_have_a_point(tmp_path, trained):
    """As pandas writes them where a column lacks values."""
    text = "c,y\n" + "".join(f"{k % 3}{trained[1:]},{k % 2}\n" for k in range(12))
    (tmp_path / "a.csv").write_text(text)
    x, names, _ = columns_of(tmp_path / "a.csv", tmp_path / "a", categorical="c")
    assert names == [f"c={k}{trained[1:]}" for k in range(3)]
    other = text.replace(".0", "") if trained == "1.0" else "\n".join(
        line.replace(",", ".0,") if "y" not in line else line for line in text.splitlines())  # fmt: skip
    (tmp_path / "b.csv").write_text(other)
    frame = pd.DataFrame({"c": [k % 3 for k in range(12)], "y": [0, 1] * 6})
    frame.astype({"c": float}).to_parquet(tmp_path / "b.parquet")
    for number, source in enumerate((tmp_path / "b.csv", frame, frame.astype({"c": float}), tmp_path / "b.parquet")):
        found, _, notices = columns_of(source, tmp_path / f"{number}", like=tmp_path / "a", label_column=None)
        assert (found, notices) == (x, ())


def test_whole_numbers_of_two_spellings_are_one_category(tmp_path):
    (tmp_path / "a.csv").write_text("c,y\n" + "1,0\n2,1\n" * 4)
    (tmp_path / "b.csv").write_text("c,y\n" + "1.0,0\n,1\n3.0,1\n" * 4)
    options = {"categorical": "c", "na": -1}
    x, names, _ = columns_of([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "d", **options)
    assert names == ["c=-1", "c=1", "c=2", "c=3.0"]
    assert x[0] == x[8] == [0, 1, 0, 0]


def test_one_column_of_several_is_there(tmp_path):
    frame = pd.DataFrame({"a": range(12), "b": range(12), "y": [0, 1] * 6})
    ingest(frame, tmp_path / "d", label_column="y")
    for text in ("a\n1\n", '"a"\n1\n'):
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(MismatchError, match='no column "b"'):
            ingest(tmp_path / "a.csv", tmp_path / "e", like=tmp_path / "d", unlabelled=True)


def test_padded_values_of_svmlight_text(tmp_path):
    """As in LIBSVM's data set protein."""
    (tmp_path / "a.svm").write_text("0   1:1.00   3: .50\n1 2:  2\n")
    ingest(tmp_path / "a.svm", tmp_path / "d", shuffle=False)
    assert read_all(tmp_path / "d")[0].tolist() == [[1, 0, 0.5], [0, 2, 0]]
    (tmp_path / "b.svm").write_text("0 1:1\n1 2: 2:1\n0 1: \n")
    refuses(BadInputError, r'b.svm:2: "2:": .*2 of 3 lines', ingest, tmp_path / "b.svm", tmp_path / "e")


@pytest.mark.parametrize(("late", "names"), [(("u", "v"), ["a", "n=", "n=u", "n=v"]), ((1, 2), ["a", "n"])])
def test_a_field_that_is_null_at_first(tmp_path, late, names):
    rows = [{"a": k, "n": None if k < 510 else late[k % 2], "y": k % 2} for k in range(520)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    x, found, _ = columns_of(tmp_path / "a.jsonl", tmp_path / "d", impute="constant:0")
    assert [name.replace("n=0", "n=") for name in found] == names
    assert x[511][-1] == (1 if late == ("u", "v") else 2)


def test_dates_of_another_order_name_the_option(tmp_path):
    rows = [f"{1 + k % 12}/{1 + k % 12}/2024,{k % 2}\n" for k in range(600)]
    (tmp_path / "a.csv").write_text("day,y\n" + "".join(rows) + "13/1/2024,1\n")
    refuses(BadInputError, r"602: .*NAME=date:dmy", ingest, tmp_path / "a.csv", tmp_path / "d", label_column="y")
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", kind="day=date:dmy")


def test_a_model_of_numbered_categories_predicts_frames_with_gaps(tmp_path):
    frame = pd.DataFrame({"c": [1, 2, 3] * 10, "b": range(30)})
    frame["y"] = (frame["c"] == 2).astype(int)
    options = {"categorical": "c", "impute": "c=category", "method": "gls", "passes": 3, "notify": lambda _: None}
    distls.train(frame, tmp_path / "m", label_column="y", **options)
    model = distls.load_model(tmp_path / "m")
    new = pd.DataFrame({"c": [1, 2, 3], "b": [0, 1, 2]})
    assert np.array_equal(model.predict(new), model.predict(new.astype({"c": float})))


@pytest.mark.parametrize("dtype", [object, "category"])
def test_values_of_several_types_are_those_of_their_csv_file(tmp_path, dtype):
    values = pd.Series(["a", "b", 1, None, 2.5, True] * 3, dtype=object).astype(dtype)
    frame = pd.DataFrame({"c": values, "y": [0, 1] * 9})
    frame.to_csv(tmp_path / "a.csv", index=False)
    expected = columns_of(tmp_path / "a.csv", tmp_path / "a", impute="category")
    assert columns_of(frame, tmp_path / "b", impute="category")[:2] == expected[:2]
    refuses(BadInputError, '"c"', ingest, frame.assign(c=[{1}, "a"] * 9), tmp_path / "c", label_column="y")


def test_numbers_with_leading_zeros_are_named(tmp_path):
    (tmp_path / "a.csv").write_text("zip,n,y\n" + "".join(f"{k * 37:05},{k}.05,{k % 2}\n" for k in range(1, 30)))
    notices = columns_of(tmp_path / "a.csv", tmp_path / "a")[2]
    assert [n for n in notices if "begin with zeros" in n and '"zip"' in n and '"n"' not in n]
    # behind the first rows too
    rows = "".join(f"{k},{k % 2}\n" for k in range(10_000, 10_600))
    for form in ("{:05}", '"{:05}"', " {:05}"):
        coded = "".join(f"{form.format(k)},{k % 2}\n" for k in range(16))
        (tmp_path / "late.csv").write_text(f"zip,y\n{rows}{coded}")
        notices = columns_of(tmp_path / "late.csv", tmp_path / form.strip("{}"))[2]
        assert len([n for n in notices if "begin with zeros" in n and '"zip"' in n]) == 1
    # among numbers of JSON, and in separated text with other kinds, which are read by records
    (tmp_path / "late.jsonl").write_text(
        "".join(f'{{"zip": {k}, "y": {k % 2}}}\n' for k in range(600)) + '{"zip": "007", "y": 0}\n'
    )
    days = "".join(f"{zip},2024-01-{k % 28 + 1:02},{k % 2}\n" for k, zip in enumerate([*range(600), "007"] * 16))
    (tmp_path / "days.csv").write_text(f"zip,day,y\n{days}")
    for name in ("late.jsonl", "days.csv"):
        notices = columns_of(tmp_path / name, tmp_path / name[:4], transform="auto")[2]
        assert len([n for n in notices if "begin with zeros" in n and '"zip"' in n]) == 1
        assert not any("zeros" in n for n in columns_of(tmp_path / name, tmp_path / name[1:], like=tmp_path / name[:4],
                                                        label_column=None)[2])  # fmt: skip
    _, names, notices = columns_of(tmp_path / "a.csv", tmp_path / "b", kind="zip=category")
    assert "zip=00037" in names
    assert not any("begin with zeros" in notice for notice in notices)


def codes_named(path, out, **options):
    return [n for n in columns_of(path, out, **options)[2] if "begin with zeros" in n]


def test_codes_of_undeclared_features_alone_are_named_once(tmp_path):
    # more columns than a notice names, one of which has codes in later rows only, read by the kernel and by records
    names = [f"c{k}" for k in range(7)]
    rows = "".join(",".join([f"0{n}"] * 6 + [str(n)]) + f",{n},2024-01-01,{n % 2}\n" for n in range(10, 610))
    rows += "".join(",".join([f"0{n}"] * 8) + f",2024-01-01,{n % 2}\n" for n in range(10, 42))
    (tmp_path / "a.csv").write_text(f"{','.join(names)},w,day,y\n{rows}")
    for ignored in ({}, {"ignore_columns": "day"}):
        out = tmp_path / f"a{len(ignored)}"
        assert len(codes_named(tmp_path / "a.csv", out, weight_column="w", **ignored)) == 1
        assert (
            codes_named(
                tmp_path / "a.csv", tmp_path / f"b{len(ignored)}", weight_column="w",
                kind=[f"{name}=number" for name in names], **ignored,
            )
            == []
        )  # fmt: skip


def test_a_column_declared_to_be_of_numbers_stays_one(tmp_path):
    for name, day in (("a", "1"), ("mixed", "2024-01-01")):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"a,b,d,y\n1,--none--,{day},0\n2,3,{day},1\n4,5,{day},0\n")
        with pytest.raises(BadInputError, match=f'{name}.csv:2: column "b": "--none--": .* --na-values'):
            columns_of(path, tmp_path / name, kind="b=number")
        names = columns_of(path, tmp_path / name, kind="b=number", na_values="--none--", na="0")[1]
        assert "b" in names


def test_exponents_of_any_size_are_not_written_out(tmp_path):
    begun = time.process_time()
    assert [*map(is_rounded, map(Decimal, ("1e-99999999", "0e-99999999", "1e99999999")))] == [True, False, True]
    assert time.process_time() - begun < 0.1  # of 100 MB each it took seconds
    # of more digits than Python's decimal numbers have
    (tmp_path / "a.csv").write_text("a,y\n" + f"1.00000000e-{'9' * 20},0\n1.5,1\n" * 2)
    assert columns_of(tmp_path / "a.csv", tmp_path / "a")[1] == ["a"]


ROWS = [(3, 5, 0), (1, 4, 1), (2, 6, 0), (4, 8, 1)]


def lines_of(form):
    return "".join(form.format(k, *row) for k, row in enumerate(ROWS, 1))


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("a,b,y,\n" + lines_of("{1},{2},{3},\n"), ' 1 column left out, "3"'),
        ("a,b,y\n" + lines_of("{1},{2},{3},\n"), ' 1 column left out, "3"'),
        ("a,,b,y,,\n" + lines_of("{1},,{2},{3},,\n"), ' 3 columns left out, "1", "4", "5"'),
        ("a,b,y\n" + lines_of("{0},{1},{2},{3}\n"), "names the rows"),
        ('"a" "b" "y"\n' + lines_of('"r{0}" {1} {2} {3}\n'), "names the rows"),
    ],
)
def test_columns_without_a_name_are_left_out(tmp_path, text, left_out):
    """As spreadsheets end lines with separators, and R writes names of rows without one for them."""
    (tmp_path / "a.csv").write_text(text)
    options = {"separator": "space"} if " " in text.split("\n")[0] else {}
    x, names, notices = columns_of(tmp_path / "a.csv", tmp_path / "d", **options)
    assert (x, names) == ([[a, b] for a, b, _ in ROWS], ["a", "b"])
    assert left_out in notices[0]
    # the rows are the same when they are read like that
    other, _, again = columns_of(tmp_path / "a.csv", tmp_path / "e", like=tmp_path / "d", label_column=None)
    assert (other, again) == (x, ())
    assert columns_of(tmp_path / "a.csv", tmp_path / "f", ignore_columns=names[:1], **options)[1] == ["b"]


def test_a_column_with_values_and_without_name_stays(tmp_path):
    (tmp_path / "a.csv").write_text("a,y,\n" + lines_of("{1},{3},{2}\n"))
    assert columns_of(tmp_path / "a.csv", tmp_path / "d")[1] == ["a", "2"]


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("Report, 2024\na,b,y\n" + lines_of("{1},{2},{3}\n"), "remove it if it is no part of the table"),
        ("a,b,y\n" + lines_of("{1},{2},{3},9\n"), "has 3 fields, the others have 4"),
        ("# by hand\na,b,y\n" + lines_of("{1},{2},{3}\n"), "remove the lines before the names"),
        ("a,b,y\n" + lines_of("{1},{2},{3}\n") * 2 + "a,b,y\n1,2,0\n", r"a\.csv:10: .* once more; remove it"),
    ],
)
def test_lines_that_are_no_part_of_the_table_are_named(tmp_path, text, keyword):
    (tmp_path / "a.csv").write_text(text)
    refuses(BadInputError, keyword, ingest, tmp_path / "a.csv", tmp_path / "d", label_column="y")


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("line", [334, 335, 336])
def test_names_are_found_on_the_first_lines_of_a_range(tmp_path, line):
    rows = ["1,2,0\n"] * 500  # a range of 2,000 bytes begins within the 334th line
    rows[line - 2] = "a,b,y\n"
    (tmp_path / "a.csv").write_text("a,b,y\n" + "".join(rows))
    with pytest.raises(BadInputError, match=rf"a\.csv:{line}: .* once more; remove it"):
        ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y")


def test_categories_may_have_the_names_of_their_columns(tmp_path):
    (tmp_path / "a.csv").write_text("t,n,y\n" + "t,1,y\nf,2,n\n" * 3)
    assert columns_of(tmp_path / "a.csv", tmp_path / "d")[1] == ["t=f", "t=t", "n"]


@pytest.mark.parametrize("values", [[1, 2] * 20, [True, False] * 20, [1.5, None] * 20], ids=["whole", "truths", "gaps"])
def test_categories_of_numbers_are_categories(tmp_path, values):
    frame = pd.DataFrame({"c": pd.Categorical(values), "a": range(40), "y": [0, 1] * 20})
    x, names, _ = columns_of(frame, tmp_path / "f", impute="category")
    assert len(names) == 3
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert columns_of(tmp_path / "a.parquet", tmp_path / "p", impute="category")[:2] == (x, names)
    for k, source in enumerate((tmp_path / "a.csv", frame.astype({"c": object}), frame[:1])):
        found, _, notices = columns_of(source, tmp_path / f"{k}", like=tmp_path / "f", label_column=None)
        assert (found, notices) == (x[: len(found)], ())
    assert columns_of(frame, tmp_path / "n", kind="c=number", na=0)[1] == ["c", "a"]


def test_truths_in_any_spelling_are_one_category(tmp_path):
    (tmp_path / "a.csv").write_text("c,y\n" + "True,0\nFalse,1\n" * 4)
    (tmp_path / "b.csv").write_text("c,y\nTRUE,0\nfalse,1\n")
    columns_of(tmp_path / "a.csv", tmp_path / "d", categorical="c")
    x, _, notices = columns_of(tmp_path / "b.csv", tmp_path / "e", like=tmp_path / "d", label_column=None)
    assert (x, notices) == ([[0, 1], [1, 0]], ())


def test_a_column_without_a_single_value_has_the_kind_of_training(tmp_path):
    rows = [{"a": k, "c": "uv"[k % 2], "day": f"2024-01-{k + 1:02}", "y": k % 2} for k in range(20)]
    frame = pd.DataFrame([*rows, dict.fromkeys(("a", "c", "day")) | {"y": 0}] * 2)
    distls.train(frame, tmp_path / "m", label_column="y", method="gls", notify=lambda _: None)
    model, new = distls.load_model(tmp_path / "m"), frame[20:21].drop(columns="y").astype(object)
    new.to_parquet(tmp_path / "a.parquet")
    new.to_csv(tmp_path / "a.csv", index=False)
    scores = []
    for source in (new, tmp_path / "a.parquet", tmp_path / "a.csv"):
        distls.predict(tmp_path / "m", source, tmp_path / "p.csv", overwrite=True, notify=lambda _: None)
        scores.append((tmp_path / "p.csv").read_text().split(",")[-1].strip())
    assert {*scores} == {f"{abs(model.decision_function(new)[0]):.7g}"}


@pytest.mark.parametrize("dtype", [object, float, "datetime64[ns]", "timedelta64[ns]"])
def test_a_column_without_a_single_value_is_one_of_gaps(tmp_path, dtype):
    frame = pd.DataFrame({"e": pd.Series([None] * 20, dtype=dtype), "a": np.arange(20) / 2, "y": [0, 1] * 10})
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    frame.to_csv(tmp_path / "a.csv", index=False)
    sources = [frame, tmp_path / "a.parquet", *[tmp_path / "a.csv"] * (dtype in (object, float))]
    for k, source in enumerate(sources):
        x, names, notices = columns_of(source, tmp_path / f"{k}", transform="auto")
        assert [name for name in names if name.startswith("e")][-1].endswith("[missing]")
        assert not np.delete(np.array(x), names.index("a"), 1).any()
        assert any('"e" (all rows: ' in notice for notice in notices)
        refuses(BadInputError, r'"e": .*missing', columns_of, source, tmp_path / "d")


def test_a_file_without_a_value_of_a_column_goes_with_the_others(tmp_path):
    paths = [tmp_path / name for name in ("a.parquet", "b.parquet")]
    for path, values in zip(paths, (["u", "v"], [None, None]), strict=True):
        pd.DataFrame({"c": values, "y": [0, 1]}).to_parquet(path)
    for k, files in enumerate((paths, paths[::-1])):
        x, names, _ = columns_of(files, tmp_path / f"{k}", impute="category")
        assert names == ["c=", "c=u", "c=v"]
        assert sorted(x) == [[0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize("form", ["%d-%b-%Y", "%d %B %y", "%b. %d, %Y", "%d/%b/%Y %H:%M:%S"])
def test_months_may_have_names(tmp_path, form):
    days = pd.date_range("2023-12-30", periods=40, freq="41h").floor("s" if "H" in form else "D")
    frame = pd.DataFrame({"day": days.strftime("%Y-%m-%d %H:%M:%S"), "y": [0, 1] * 20})
    expected = columns_of(frame, tmp_path / "a", kind="day=date")
    x, names, notices = columns_of(frame.assign(day=days.strftime(form)), tmp_path / "b")
    assert "is dates" in notices[0]
    assert [row[: len(names)] for row in expected[0]] == x


def test_words_are_no_months(tmp_path):
    frame = pd.DataFrame({"c": [f"{k % 28 + 1} mars 2024" for k in range(40)] * 2, "y": [0, 1] * 40})
    assert len(columns_of(frame, tmp_path / "a")[1]) == 28


def test_labels_that_differ_in_case_only_are_named(tmp_path):
    (tmp_path / "a.csv").write_text("a,y\n1,TRUE\n2,False\n3,True\n")
    (notice,) = columns_of(tmp_path / "a.csv", tmp_path / "d")[2]
    assert '"TRUE" and "True"' in notice


def test_labels_with_marks_are_named(tmp_path):
    (tmp_path / "a.csv").write_text("a,y\n1,10%\n2,25%\n3,30%\n")
    (notice,) = columns_of(tmp_path / "a.csv", tmp_path / "d")[2]
    assert "numbers with marks" in notice


def test_an_unknown_category_is_named_with_its_line(tmp_path):
    table = pd.DataFrame({"c": ["u", "v"] * 6, "n": [f"{k} %" for k in range(12)], "y": [0, 1] * 6})
    ingest(table, tmp_path / "d", label_column="y")
    table.assign(c=["u"] * 11 + ["w"]).to_csv(tmp_path / "a.csv", index=False)
    (notice,) = ingest(tmp_path / "a.csv", tmp_path / "e", like=tmp_path / "d").notices
    assert 'a.csv:13: column "c": "w"' in notice


def test_texts_of_another_encoding_are_one_kind_of_trouble(tmp_path):
    rows = [f"{k},{k} €,{k % 2}" for k in range(9)]
    (tmp_path / "a.csv").write_bytes("\n".join(["a,c,y", *rows]).encode("cp1252"))
    with pytest.raises(BadInputError, match=r"9 of 9 lines read are refused for this\Z"):
        ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", kind="c=text")


@pytest.mark.parametrize("name", ["a.json", "a.txt"])
def test_a_json_array_is_named(tmp_path, name):
    pd.DataFrame({"text": ["a b", "c d"], "y": [0, 1]}).to_json(tmp_path / name, orient="records")
    refuses(BadInputError, r"JSON array.*lines=True", ingest, tmp_path / name, tmp_path / "d")


def test_nan_of_json_is_a_missing_label(tmp_path):
    """Python's writers have it for what a frame lacks; it is no class."""
    rows = [{"a": k + 0.5, "y": np.nan if k % 4 else "ab"[k % 8 == 0]} for k in range(24)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "NaN" in (tmp_path / "a.jsonl").read_text()
    assert ingest(tmp_path / "a.jsonl", tmp_path / "d", label_column="y", drop="unknown").rows == 6
    assert open_dataset(tmp_path / "d").meta.classes == ["a", "b"]
    with pytest.raises(BadInputError, match=r'a\.jsonl:2: column "y": the row has no label'):
        ingest(tmp_path / "a.jsonl", tmp_path / "e", label_column="y")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", ""])
def test_a_set_that_is_missing_has_no_members(tmp_path, name):
    frame = pd.DataFrame({"s": ["a|b", "b|c", None, "a|c"] * 10, "y": [0, 1] * 20})
    frame.to_csv(tmp_path / "a.csv", index=False, na_rep="NA")
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "a.parquet")
    x, names, _ = columns_of(tmp_path / name if name else frame, tmp_path / "d", kind="s=set:|")
    assert (names, x[2]) == (["s=a", "s=b", "s=c"], [0, 0, 0])
    lists = frame.assign(s=[value.split("|") if isinstance(value, str) else None for value in frame["s"]])
    assert columns_of(lists, tmp_path / "e", like=tmp_path / "d", label_column=None)[0] == x


@pytest.mark.parametrize(("one", "other"), [("-0", "-0.0"), ("7", "7.0")])
def test_a_number_written_in_two_ways_is_one_member(tmp_path, one, other):
    texts = [f"a|{one}", f"{other}|{one}", f"b|{other}", "a"] * 10
    pd.DataFrame({"s": texts, "y": [0, 1] * 20}).to_csv(tmp_path / "a.csv", index=False)
    x, names, _ = columns_of(tmp_path / "a.csv", tmp_path / "d", kind="s=set:|")
    assert names == [f"s={one}", "s=a", "s=b"]
    assert x[:4] == [[1, 1, 0], [1, 0, 0], [1, 0, 1], [0, 1, 0]]


def test_labels_that_only_held_out_rows_have_are_named(tmp_path):
    sets = [[0, k % 2 + 1] for k in range(40)]
    sets[7] = [0, 9]
    found = [
        ingest(np.eye(40), tmp_path / f"{seed}", y=sets, multilabel=True, split={"test": 0.5}, seed=seed).notices
        for seed in range(4)
    ]
    counts = [open_dataset(tmp_path / f"{seed}").meta.label_counts[-1] for seed in range(4)]
    assert {*counts} == {0, 1}
    assert [bool(notices) for notices in found] == [not count for count in counts]


def test_texts_that_are_all_missing_are_named(tmp_path):
    """Namibia, in a column of countries with gaps."""
    (tmp_path / "a.csv").write_text("c,y\n" + "NA,0\nDE,1\n,0\n" * 4)
    (tmp_path / "b.csv").write_text("c,y\n" + "NA,0\nDE,1\nFR,0\n" * 4)
    assert "all read as missing" in columns_of(tmp_path / "a.csv", tmp_path / "a", impute="category")[2][0]
    assert "missing" not in columns_of(tmp_path / "b.csv", tmp_path / "b", impute="category")[2][0]


def test_columns_that_are_in_names_of_folders_alone_are_named(tmp_path):
    frame = pd.DataFrame({"a": [1.5, 2.5], "y": [0, 1]})
    paths = [tmp_path / f"year={k}" / "month=1" / "part.csv" for k in (2023, 2024)]
    for path in paths:
        path.parent.mkdir(parents=True)
        frame.to_csv(path, index=False)
    (notice,) = columns_of(paths, tmp_path / "a")[2]
    assert notice.startswith("year of the names of folders")
    assert columns_of(paths[:1], tmp_path / "b")[2] == ()


# -- tables of the kinds that trackers of other programs report ------------------------------------------


N = 60


def ingested(folder, cells, **options):
    """Ingest a column "a" beside "x" and the label "y"; return the notices, the features by name, and the classes."""
    rows = [f"{cell};{k % 7};{k % 2}" for k, cell in enumerate(cells)]
    (folder / "a.csv").write_text("\n".join(["a;x;y", *rows]) + "\n")
    report = ingest(folder / "a.csv", folder / "d", **{"label_column": "y", "shuffle": False, **options})
    data = open_dataset(folder / "d")
    names = data.feature_names()
    return "\n".join(report.notices), dict(zip(names, read_all(data)[0].T, strict=True)), data.meta.classes


def test_a_word_that_makes_ids_of_numbers_is_named(tmp_path):
    """As a row of totals does."""
    notices, found, _ = ingested(tmp_path, [f"{k}.5" for k in range(N)] + ["Total"])
    assert [*found] == ["x"]
    assert '"a" has another value in each row and is taken for an id' in notices
    assert f'such as 0.5, but also "Total" ({tmp_path}/a.csv:62): it is no number; --na-values "Total"' in notices


def test_ids_that_are_numbers_with_a_unit_are_named(tmp_path):
    notices = ingested(tmp_path, [f"{k} kg" for k in range(N)])[0]
    assert "is taken for an id" in notices
    assert '"a" look like numbers with a unit, such as "0 kg"' in notices


def test_a_table_of_ids_alone_says_what_helps(tmp_path):
    with pytest.raises(BadInputError, match=r'no column is left .*; --kind "a=number" or "a=category" makes it one'):
        ingested(tmp_path, [f"10.0.{k}.{k}" for k in range(N)], ignore_columns="x")


@pytest.mark.parametrize(
    ("text", "number"), [("1,23,456", 123456), ("12,34,567.5", 1234567.5), ("1,234", 1234), ("1,23,45,678", 12345678)]
)
def test_thousands_as_in_india(tmp_path, text, number):
    notices, found, _ = ingested(tmp_path, [text, "1,234", "2,34,567"] * 5, dtype="float64", decimal=".")
    assert '"a" is numbers with marks' in notices
    assert found["a"].tolist() == [number, 1234, 234567] * 5


def test_days_of_weeks_are_dates():
    assert date_parts("2024-W05-3", "") == date_parts("2024W053", "") == date_parts("2024-01-31", "")
    assert date_parts("2024-W05-8", "") is None


def test_dates_of_zeros_are_named_as_missing_values(tmp_path):
    """MySQL writes them."""
    days = [f"2024-01-{k % 28 + 1:02}" for k in range(N)] + ["0000-00-00"]
    with pytest.raises(BadInputError, match=r'"0000-00-00": expected a date.*; --na-values "0000-00-00" if it stands'):
        ingested(tmp_path, days, kind="a=date")
    found = ingested(tmp_path, days, na_values="0000-00-00", transform="auto")[1]
    assert found["a[days][missing]"].argmax() == N


def test_dates_of_the_last_year_are_named(tmp_path):
    days = [f"2024-01-{k % 28 + 1:02}" for k in range(N)] + ["9999-12-31"]
    notices = ingested(tmp_path, days)[0]
    assert 'dates in "a" such as 9999-12-31 may stand for no value: --na-values "9999-12-31" reads them so' in notices


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("31.12.9999", True),
        ("9999-12-31 10:11:12", True),
        ("2024-01-02 10:11:12.399991", False),
        ("2024-01-02 10:11:12.9999", False),
        ("2024-01-02 10:11:12.99991", False),
    ],
)
def test_only_the_year_is_the_last(text, named):
    maker = FeatureMaker(TableColumns(), IngestOptions(), Samples({"a": [text]}), {})
    maker.feature("a", is_category=True)
    assert any("may stand for no value" in notice for notice in maker.notices()) == named


def test_a_split_needs_a_name(tmp_path):
    refuses(ParameterError, r"a split is NAME=FRACTION .*, not 0\.1", ingested, tmp_path, range(N), split=0.1)


def test_labels_that_are_dates_are_named(tmp_path):
    notices, _, classes = ingested(tmp_path, [f"2024-01-{k % 28 + 1:02}" for k in range(N)], label_column="a")
    assert 'labels look like dates, such as "2024-01-01", and are classes' in notices
    assert len(classes) == 28


@pytest.mark.parametrize("n", [100, 600])
def test_a_decimal_comma_is_found_behind_values_that_options_call_missing(tmp_path, n):
    """Polars took the column for words where many are missing first."""
    cells = ["-"] * 10 + [f"{k % 9},5" for k in range(n - 10)]
    notices, found, _ = ingested(tmp_path, cells, na_values="-", na=-1)
    assert "have a decimal comma" in notices
    assert np.array_equal(found["a"], [-1.0] * 10 + [k % 9 + 0.5 for k in range(n - 10)])
