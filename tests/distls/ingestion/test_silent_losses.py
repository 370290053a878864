"""What tables have, and what becomes of it: nothing is lost without a word."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from helpers import refuses

from distls import StochasticClassifier, ingest, open_dataset
from distls.ingestion.request import source_plan
from distls.storage.errors import BadInputError
from distls.testing.formats import read_all
from distls.workers.ingestion.formats.mixed_columns import date_parts, members

pytest.importorskip("pyarrow")


def read(text, folder, label_column="y", **options):
    """Ingest the text of a file; return the notices, joined, the features by name, and the labels."""
    (folder / "a.csv").write_text(text)
    report = ingest(folder / "a.csv", folder / "d", label_column=label_column, shuffle=False, **options)
    x, y = read_all(open_dataset(folder / "d"))
    return ("\n".join(report.notices), dict(zip(open_dataset(folder / "d").feature_names(), x.T, strict=True)), y)


def test_numbers_may_be_members_of_sets(tmp_path):
    rows = "".join(f"{k % 3}|{k % 5},{k % 2}\n" for k in range(40))
    _, found, _ = read("tags,y\n" + rows, tmp_path, kind="tags=set:|")
    assert [*found] == [f"tags={k}" for k in range(5)]
    assert found["tags=4"].tolist() == [k % 5 == 4 for k in range(40)]


X = np.arange(24.0).reshape(12, 2)
WITH_GAPS = {
    "objects": np.array(["a", "b", None] * 4, dtype=object),
    "list": ["a", "b", float("nan")] * 4,
    "categories": pd.Series(["a", "b", None] * 4, dtype="category"),
    "numbers": np.array([0, 1, None] * 4, dtype=object),
    "truths": pd.Series([True, False, pd.NA] * 4, dtype=object),
    "masked": np.ma.masked_array([0, 1, 2] * 4, mask=[0, 0, 1] * 4),
    "masked-words": np.ma.masked_array(["a", "b", "c"] * 4, mask=[0, 0, 1] * 4),
}


@pytest.mark.parametrize("y", WITH_GAPS.values(), ids=WITH_GAPS)
def test_labels_in_memory_may_be_missing(y, tmp_path):
    refuses(BadInputError, r"X, row 2: the (row has no label|label is empty)", ingest, X, tmp_path / "a", y=y)
    report = ingest(X, tmp_path / "d", y=y, drop=["unknown"])
    assert report.dropped == {"unknown": 4}
    classes = open_dataset(tmp_path / "d").meta.classes
    assert len(classes) == 2
    assert not {*classes} & {"nan", "None", 2}
    refuses(ValueError, r"no label in 4 of 12 places, the first at 2|[Ii]nput.* NaN", StochasticClassifier().fit, X, y)


def test_objects_are_labels_by_their_values(tmp_path):
    ingest(X, tmp_path / "d", y=np.array([0, 1, 2**60] * 4, dtype=object), target="class")
    assert {*open_dataset(tmp_path / "d").meta.classes} == {"0", "1", str(2**60)}
    with pytest.raises(BadInputError, match="values of type object"):
        ingest(X, tmp_path / "e", y=np.array([0, "a", None] * 4, dtype=object))


def test_classes_that_were_missing_labels_are_named(tmp_path):
    report = ingest(X, tmp_path / "d", y=np.array(["a", "None", "b"] * 4))
    assert any(notice.startswith('y: "None" is a class') for notice in report.notices)


def test_masked_values_are_missing(tmp_path):
    x = np.ma.masked_array(X, mask=X == 4)
    refuses(BadInputError, "X, row 2: a value is not finite", ingest, x, tmp_path / "d", y=[0, 1] * 6)
    refuses(ValueError, "NaN", StochasticClassifier().fit, x, [0, 1] * 6)


def rows(*columns):
    return "".join(",".join(map(str, (*row, k % 2))) + "\n" for k, row in enumerate(zip(*columns, strict=True)))


NOTICES = {
    "documents-late": (
        [f"12 Main street{k % 1900}" for k in range(2500)],
        'column "a" has many values and is taken for documents: words are hashed into 262,144 features',
    ),
    "lists-of-numbers": (
        [f'"[0.{k}, 0.{7 * k}, {k % 5}]"' for k in range(1, 1900)],
        "taken for documents, though they are lists, whose numbers need a column each",
    ),
    "month-first": (
        [f"01/{k % 12 + 1:02}/2024" for k in range(60)],
        '01/02/2024 is read with the month first; --kind "a=date:dmy" reads them the other way',
    ),
    "day-first": (
        [f"01-{k % 12 + 1:02}-2024" for k in range(60)],
        '01-02-2024 is read with the day first; --kind "a=date:mdy" reads them the other way',
    ),
    "percent": (["10%", "0.1"] * 30, 'numbers in "a" have different marks, which are left out: 10% and 0.1 are'),
    "currencies": (["$5", "€6", "$7"] * 20, "$5 and €6 are read as they are without"),
    "small": (
        [f"1e-{k}" for k in range(40, 70)],
        'different values of column "a" become equal in float32, such as 1e-69 and 1e-46; --dtype float64 keeps them',
    ),
}  # fmt: skip


@pytest.mark.slow_cases("documents-late", "lists-of-numbers")
@pytest.mark.parametrize(("cells", "notice"), NOTICES.values(), ids=NOTICES)
def test_what_a_column_is_taken_for_is_said(cells, notice, tmp_path):
    assert notice in read("a,x,y\n" + rows(cells, range(len(cells))), tmp_path)[0]


QUIET = {
    "decided": [f"01/{k % 12 + 1:02}/2024" for k in range(60)] + ["13/01/2024"],
    "same-day": ["03/03/2024", "04/04/2024"] * 30,
    "dollars": ["$5", "6", "$7"] * 20,
    "all-percent": ["10%", "0.1%"] * 30,
    "hours": [f"2024-01-{k % 28 + 1:02} {k % 24:02}:00:00" for k in range(200)],
}


@pytest.mark.parametrize("cells", QUIET.values(), ids=QUIET)
def test_what_is_certain_is_not_doubted(cells, tmp_path):
    notices = read("a,x,y\n" + rows(cells, range(len(cells))), tmp_path, transform="auto")[0]
    assert "columns by their values" in notices
    assert not any(doubt in notices for doubt in ("tells day", "different marks", "become equal"))


def test_ids_of_the_first_rows_are_called_so(tmp_path):
    notices = read("customer_id,x,y\n" + rows([k % 700 for k in range(1300)], range(1300)), tmp_path)[0]
    assert 'column "customer_id" has another value in each of the first rows and is taken for an id' in notices


def test_a_file_that_is_given_twice_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + rows(range(4)))
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    options = {"label_column": "y", "shuffle": False}
    for number, second in enumerate(("a.csv", "b.csv")):
        report = ingest([tmp_path / "a.csv", tmp_path / second], tmp_path / f"{number}", **options)
        assert any("the same file as" in notice and "read twice" in notice for notice in report.notices)
        assert open_dataset(tmp_path / f"{number}").meta.n_rows == 8


@pytest.mark.parametrize(
    "options", [{"kind": "a,b=ignore"}, {"ignore_columns": "a,b"}, {"ignore_columns": "a,b", "categorical": "x"}]
)
def test_names_may_have_commas(options, tmp_path):
    text = '"a,b",x,y\n' + rows(range(9), range(9))
    assert not any("a,b" in name for name in read(text, tmp_path, **options)[1])


def test_a_number_may_be_a_name_where_it_is_no_position(tmp_path):
    assert [*read("2019,2020\n" + rows(range(9)), tmp_path, label_column="2020")[1]] == ["2019"]


def test_a_word_for_missing_values_may_be_a_class(tmp_path):
    text = "x,y\n" + "".join(f"{k},{('None', 'mild')[k % 2]}\n" for k in range(20))
    read(text, tmp_path, na_values="!None")
    assert [*open_dataset(tmp_path / "d").meta.classes] == ["None", "mild"]


REFUSED = {
    "backslash": ("a,t,y\n" + '1,"say \\"h, i\\"",0\n' * 9, "a quote within quotes is written twice"),
    "single-quotes": ("a,t,y\n" + "1,'say, i',0\n" * 9, "not between single ones"),
    "word-among-dates": (
        "d,y\n" + "".join(f"2024-01-{k % 28 + 1:02},{k % 2}\n" for k in range(600)) + "unknown,1\n",
        '--na-values "unknown" if it stands for no value',
    ),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals_say_what_helps(text, message, tmp_path):
    refuses(BadInputError, message, read, text, tmp_path)


def test_files_of_one_table_have_one_separator(tmp_path):
    (tmp_path / "a.csv").write_text("x,z,y\n" + rows(range(9), range(9)))
    (tmp_path / "b.csv").write_text("x;z;y\n" + rows(range(9), range(9)).replace(",", ";"))
    with pytest.raises(BadInputError, match=r"b\.csv: its separator is ';', that of .*a\.csv ','"):
        ingest([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "d", label_column="y")


def test_names_are_found_in_any_form_of_unicode(tmp_path):
    decomposed = "e\u0301"
    found = read(f"{decomposed},x,y\n" + rows(range(9), range(9)), tmp_path, kind="\u00e9=ignore")[1]
    assert [*found] == ["x"]


def test_numbers_of_json_lines_may_be_texts(tmp_path):
    records = [{"a": f"{k / 4}", "c": f"{k % 3}", "y": k % 2} for k in range(60)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    report = ingest(tmp_path / "a.jsonl", tmp_path / "d", label_column="y", shuffle=False)
    assert open_dataset(tmp_path / "d").feature_names() == ["a", "c=0", "c=1", "c=2"]
    assert read_all(open_dataset(tmp_path / "d"))[0][:, 0].tolist() == [k / 4 for k in range(60)]
    assert any('texts in column "c" are whole numbers' in notice for notice in report.notices)


# without the time, which would be in the names of cases
TWICE = gzip.compress(gzip.compress(b"x,y\n1,0\n2,1\n", mtime=0), mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv.gz", TWICE, "compressed twice; gunzip"),
        ("a.csv.Z", b"\x1f\x9d\x90abc", "uncompress"),
        ("a.tar", b"a.csv".ljust(257, b"\0") + b"ustar".ljust(255, b"\0"), "a tar archive; unpack it"),
        ("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a.png: a picture; make an array of them first"),
    ],
)
def test_what_has_to_be_changed_first_is_said(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    refuses(BadInputError, message, ingest, tmp_path / name, tmp_path / "d", label_column="y")


def test_labels_beside_a_frame_are_as_many(tmp_path):
    with pytest.raises(BadInputError, match="y: 2 values do not go with the 3 rows of X"):
        ingest(pd.DataFrame({"a": [1, 2, 3]}), tmp_path / "d", y=[0, 1])


def test_estimators_name_who_takes_sets_of_labels():
    with pytest.raises(BadInputError, match=r"distls\.train and distls\.ingest take sets of labels"):
        StochasticClassifier().fit(X[:4], np.array([[0, 1], [1, 1], [0, 0], [1, 0]]))


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_commas_of_lists_separate_no_columns(tmp_path, mark):
    rows = "".join(f'{k % 2}{mark}"[""{k % 3}"", ""30""]"\n' for k in range(40))
    (tmp_path / "a.csv").write_text(rows)
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column="0", header="no")
    assert open_dataset(tmp_path / "d").meta.n_features == 4


def test_dates_that_training_had_otherwise_are_named(tmp_path):
    rows = pd.DataFrame({"d": [f"2024-{k % 12 + 1:02}-17" for k in range(40)], "x": range(40), "y": [0, 1] * 20})
    read(rows.to_csv(index=False), tmp_path)
    later = rows.assign(d=[f"{k % 12 + 1}/2/2024" for k in range(40)])
    for name, source in (("frame", later), ("file", _file(later, tmp_path))):
        report = ingest(source, tmp_path / name, like=tmp_path / "d", shuffle=False)
        assert "tells day and month apart, and the training data have no such dates: 1/2/2024 is read with the day" in (
            "\n".join(report.notices)
        )
    certain = later.assign(d=["31/1/2024", *later["d"][1:]])
    assert not ingest(certain, tmp_path / "certain", like=tmp_path / "d").notices


def _file(table, folder, name="later.csv"):
    table.to_csv(folder / name, index=False)
    return folder / name


def test_later_times_of_day_are_named(tmp_path):
    days = [f"2024-01-{k % 28 + 1:02}" for k in range(700)]
    days[-1] += " 12:00"
    rows = pd.DataFrame({"d": days, "x": range(700), "y": [0, 1] * 350})
    notices, found, _ = read(rows.to_csv(index=False), tmp_path)
    assert 'dates in "d" have times of day, but the first ones' in notices
    assert found["d[days]"][-1] % 1 == 0.5
    assert "d[day sin]" not in found


def test_repeated_ids_are_named(tmp_path):
    rows = pd.DataFrame({"k": [*range(30), 7], "x": range(31), "y": [*[0, 1] * 15, 1]})
    assert (
        'ids in "k" occur more than once in the first rows, such as 7'
        in read(rows.to_csv(index=False), tmp_path, id_column="k")[0]
    )
    later = ingest(rows, tmp_path / "e", like=tmp_path / "d")
    assert any('ids in "k" occur more than once' in notice for notice in later.notices)
    assert not ingest(rows[:30], tmp_path / "f", like=tmp_path / "d").notices


def test_utf8_that_is_read_in_another_encoding_is_named(tmp_path):
    text = "c,x,y\n" + "".join(f"{'éü'[k % 2]},{k},{k % 2}\n" for k in range(20))
    (tmp_path / "a.csv").write_bytes(text.encode("cp1252"))
    own = ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", encoding="cp1252")
    assert not any("UTF-8" in notice for notice in own.notices)
    (tmp_path / "b.csv").write_bytes(text.encode())
    report = ingest(tmp_path / "b.csv", tmp_path / "e", like=tmp_path / "d")
    assert any("b.csv: valid UTF-8, with characters beyond ASCII, but read as cp1252" in n for n in report.notices)


@pytest.mark.parametrize("at", [3, 700])
def test_fields_may_have_line_breaks_in_any_table(tmp_path, at):
    words = ["u", "v", "w"] * 300
    words[at] = 'two\nlines, "quoted"'
    rows = pd.DataFrame({"a": np.arange(900) / 8, "c": words, "y": [0, 1] * 450})
    ingest(rows, tmp_path / "frame", label_column="y", shuffle=False)
    expected = open_dataset(tmp_path / "frame")
    _, found, y = read(rows.to_csv(index=False), tmp_path)
    assert np.array_equal(np.column_stack([*found.values()]), read_all(expected)[0])
    assert np.array_equal(y, read_all(expected)[1])
    ingest(_file(rows, tmp_path), tmp_path / "later", like=tmp_path / "d", shuffle=False)
    assert np.array_equal(read_all(open_dataset(tmp_path / "later"))[0], read_all(expected)[0])
    refuses(BadInputError, "quote", read, 'a,c,y\n1,u,0\n2,"v,1\n', tmp_path / "frame")


def test_names_with_commas_and_blanks_have_kinds(tmp_path):
    rows = "".join(f"{k},{k % 3},{k % 2}\n" for k in range(30))
    for kind in ('"a, b"=category', "a, b=category"):
        (tmp_path / kind).mkdir()
        assert "a, b=2" in read(f'x,"a, b",y\n{rows}', tmp_path / kind, kind=kind.replace('"', ""))[1]


@pytest.mark.parametrize(
    "y", [[["a", "b"], ["c"]] * 6, pd.Series([["a"], ["b", "c"]] * 6), [("a", "b"), ("c", "d")] * 6]
)
def test_estimators_name_sets_of_labels(y):
    refuses(BadInputError, r"one class for each row; distls\.train", StochasticClassifier().fit, X, y)


@pytest.mark.parametrize("cell", ["{{{},{}}}", "{{'{}', '{}'}}"], ids=["postgresql", "python"])
def test_sets_may_stand_between_braces(tmp_path, cell):
    rows = "".join(f'"{cell.format("abc"[k % 3], "de"[k % 2])}",{k},{k % 2}\n' for k in range(40))
    _, found, _ = read("tags,x,y\n" + rows, tmp_path)
    assert [*found] == ["x", *(f"tags={member}" for member in "abcde")]
    assert found["tags=a"].tolist() == [k % 3 == 0 for k in range(40)]
    (tmp_path / "ids").mkdir()
    ids = "".join(f"{{{k:04}-{k % 3}}},{k},{k % 2}\n" for k in range(60))
    assert "is taken for an id" in read("tags,x,y\n" + ids, tmp_path / "ids")[0]


@pytest.mark.parametrize(
    ("cell", "mark", "found"),
    [
        ("{10:30,b}", "", ["10:30", "b"]),
        ("set()", "", []),
        ('{"a, b",c}', "", ["a, b", "c"]),
        ("{NULL,a}", "", ["a"]),
        ("{'x', 'y'}", "", ["x", "y"]),
        ("plain", "", ["plain"]),
        ('{"a": 1}', "", ['{"a": 1}']),
        ("{a|b}", "|", ["b}", "{a"]),  # as models with a mark have always read it
    ],
)
def test_members_of_sets_between_braces(cell, mark, found):
    assert members(cell, mark) == found


@pytest.mark.parametrize("week", ["2023-W53", "2024-W00"])
def test_a_week_that_no_year_has_is_no_date(week):
    assert date_parts(week, "") is None


def test_an_ingest_by_records_resumes_by_records(tmp_path, monkeypatch):
    """Ranges of the kernel and of records are not the same rows."""
    monkeypatch.setattr(source_plan, "RANGE_BYTES", 2**14)
    rows = [f"{k % 2},{k},{'xyz'[k % 3]}" for k in range(3000)]
    rows[500] = '1,500,"x\nx"'
    (tmp_path / "a.csv").write_text("\n".join(["y,a,c", *rows]) + "\n")

    def interrupt(done, total, stage):
        if stage == "parse" and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", progress=interrupt)
    assert ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y").rows == 3000
    ingest(tmp_path / "a.csv", tmp_path / "whole", label_column="y")
    assert open_dataset(tmp_path / "d").fingerprint == open_dataset(tmp_path / "whole").fingerprint
