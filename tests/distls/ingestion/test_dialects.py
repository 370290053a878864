"""A table is read at prediction as at training: separator, header, decimal mark, what stands for no value."""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import distls
from distls.cli import cli
from distls.ingestion.ingest import ingest
from distls.ingestion.request.like import like_model
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import BadInputError, DistlsError, MismatchError
from distls.storage.model.model import load_model
from distls.testing.formats import read_all
from distls.workers.ingestion.formats.table_columns import MISSING

# A number, a category and a label; numbers are told by no other value.
ROWS = [[f"{k % 7}.5", "uvw"[k % 3], f"c{int(k % 7 > 3)}"] for k in range(42)]


def table(rows, separator=",", header=None, decimal="."):
    """Return rows as text, quoted where they have to be."""
    file = io.StringIO()
    lines = [[field.replace(".", decimal) for field in row] for row in rows]
    csv.writer(file, delimiter=separator).writerows([header, *lines] if header else lines)
    return file.getvalue()


def trained(tmp_path, text, name="train.csv", **options):
    (tmp_path / name).write_text(text)
    said = []
    options = {"label_column": "last", "method": "gls", "params": {"alpha": 1e-3}, "transform": ()} | options
    distls.train(tmp_path / name, tmp_path / "run", notify=said.append, **options)
    return tmp_path / "run", said


def predicted(run, tmp_path, text, name="new.csv", **options):
    """Return labels and scores."""
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    out = tmp_path / "out.csv"
    distls.predict(run, tmp_path / name, out, overwrite=True, notify=str, **options)
    with out.open(newline="") as file:
        return [(row["label"], row["score"]) for row in csv.DictReader(file)]


# -- what was known at training --------------------------------------------------------------------------


@pytest.mark.slow_cases(r"\^", ":", "~", r"\|")
@pytest.mark.parametrize("header", [["n", "w", "y"], None], ids=["header", "none"])
@pytest.mark.parametrize(
    ("separator", "decimal"), [(" ", "."), (";", ","), ("^", "."), (":", ","), ("~", "."), ("|", ",")]
)
def test_every_command_reads_as_training_did(tmp_path, separator, decimal, header):
    text = table(ROWS, separator, header, decimal)
    given = {"format": "csv", "separator": separator, "header": header is not None}
    run, _ = trained(tmp_path, text, "train.txt", **given)
    assert json.dumps(load_model(run).source["recipe"]["dialect"]["decimal"]) == f'"{decimal}"'
    (tmp_path / "test.txt").write_text(text)
    expected = distls.evaluate(run, open_dataset(tmp_path / "run-data")).to_json()
    assert distls.evaluate(run, tmp_path / "test.txt").to_json() == expected
    assert distls.calibrate(run, tmp_path / "test.txt").evaluation.n_rows == len(ROWS)
    ingest(tmp_path / "test.txt", tmp_path / "like", like=run, shuffle=False)
    ingest(tmp_path / "test.txt", tmp_path / "own", label_column="last", shuffle=False, **given)
    for one, other in zip(read_all(tmp_path / "like"), read_all(tmp_path / "own"), strict=True):
        assert np.array_equal(one, other)
    rows = table([row[:2] for row in ROWS], separator, header and header[:2], decimal)
    found = predicted(run, tmp_path, rows, "new.txt")
    assert found == predicted(run, tmp_path, gzip.compress(rows.encode()), "new.txt.gz")
    assert len(found) == len(ROWS)
    if header:  # names lead to the columns in any order, between other separators, in a frame
        shuffled = table([[row[1], row[0]] for row in ROWS], ",", ["w", "n"])
        assert predicted(run, tmp_path, shuffled) == found
        frame = {"w": [row[1] for row in ROWS], "n": [float(row[0]) for row in ROWS]}
        assert distls.load_model(run).predict(frame).tolist() == [label for label, _ in found]


@pytest.mark.parametrize("first", [[1, 0], [0, 1], [1, 1], [0, 0]])
def test_a_model_without_names_never_looks_for_them(tmp_path, first):
    numbers = [[0, 0, "no"], [0, 1, "no"], [1, 0, "yes"], [1, 1, "yes"]]
    run, _ = trained(tmp_path, table([[str(v) for v in row] for row in numbers * 10]))
    rows = [first, *(row[:2] for row in numbers)]
    labels = ["yes" if row[0] else "no" for row in rows]
    text = table([[str(v) for v in row] for row in rows])
    assert [label for label, _ in predicted(run, tmp_path, text)] == labels
    (tmp_path / "test.csv").write_text(
        table([[*map(str, row), label] for row, label in zip(rows, labels, strict=True)])
    )
    found = distls.evaluate(run, tmp_path / "test.csv")
    assert (found.n_rows, found.error) == (5, 0)
    # words in the first line are a header all the same, also for what earlier versions wrote
    del load_model(run).source["recipe"]["dialect"]
    assert [label for label, _ in predicted(run, tmp_path, "a,b\n" + text)] == labels


@pytest.mark.parametrize("header", [["x"], []])
def test_a_table_of_one_column_needs_no_separator(tmp_path, header):
    rows = [[f"{k}.5", str(k // 20)] for k in range(40)]
    run, _ = trained(tmp_path, table(rows, ";", header and ["x", "y"]))
    found = predicted(run, tmp_path, table([["3.5"], ["33.5"]], header=header))
    assert [label for label, _ in found] == ["0", "1"]
    ingest(tmp_path / "new.csv", tmp_path / "d", unlabelled=True, format="csv", header=bool(header))
    assert read_all(tmp_path / "d")[0].tolist() == [[3.5], [33.5]]


def test_models_of_earlier_versions_keep_their_categories(tmp_path):
    """Fewer texts stood for no value, and a recipe did not say how a table was written."""
    rows = [[str(k % 5), ["Nona", "b"][k % 2], ["NULK", "x"][k % 2]] for k in range(20)]
    model = load_model(trained(tmp_path, table(rows, header=["n", "w", "y"]))[0])
    source = json.loads(json.dumps(model.source).replace("Nona", "None"))
    del source["recipe"]["dialect"]
    old = like_model(replace(model, source=source, classes=["NULL", "x"]), "old")
    text = table(rows, header=["n", "w", "y"]).replace("Nona", "None").replace("NULK", "NULL")
    (tmp_path / "old.csv").write_text(text)
    ingest(tmp_path / "old.csv", tmp_path / "d", like=old, shuffle=False)
    x, y = read_all(tmp_path / "d")
    assert (x[:, 1:].tolist(), y.tolist()) == ([[1, 0], [0, 1]] * 10, [0, 1] * 10)
    (tmp_path / "new.csv").write_text("n,w\nN/A,b\n")
    with pytest.raises(BadInputError, match="value is missing"):
        ingest(tmp_path / "new.csv", tmp_path / "e", like=old, unlabelled=True)


# -- the first line --------------------------------------------------------------------------------------

MANY = [[str(k), str(2 * k), str(k % 3)] for k in range(30)]


@pytest.mark.parametrize(
    ("header", "rows", "label", "said"),
    [
        (["0", "1", "y"], [[*row[:2], str(k % 2)] for k, row in enumerate(MANY)], "last", True),
        (["2019", "2020", "cls"], [[*row[:2], f"c{k % 2}"] for k, row in enumerate(MANY)], -1, True),
        (["450.5", "451.0", "y"], [[f"{k}.5", f"{k}.1", str(k % 2)] for k in range(30)], 2, True),
        (["a", "", "y"], [[*row[:2], str(k % 2)] for k, row in enumerate(MANY)], "last", True),
        (["0", "1", "y"], [[*row[:2], str(k % 2)] for k, row in enumerate(MANY)], "y", False),
        (None, [[*row[:2], f"c{k % 2}"] for k, row in enumerate(MANY)], "last", False),
        (None, [["u", "1", "x"], *([*row[:2], "xy"[k % 2]] for k, row in enumerate(MANY))], "last", False),
        (None, [[f"{k}.5", f"{k}.1", f"s{k // 15}"] for k in range(30)], "last", False),
    ],
)  # fmt: skip
def test_the_first_line_is_decided_by_all_that_is_known(tmp_path, header, rows, label, said):
    (tmp_path / "a.csv").write_text(table(rows, header=header))
    report = ingest(tmp_path / "a.csv", tmp_path / "d", label_column=label)
    data = open_dataset(tmp_path / "d")
    assert (data.meta.n_rows, len(data.meta.classes)) == (len(rows), 2)
    assert any("--header no" in notice for notice in report.notices) == said
    if said:
        ingest(tmp_path / "a.csv", tmp_path / "e", label_column=label, header="no", na=0)
        assert open_dataset(tmp_path / "e").meta.n_rows == len(rows) + 1


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text(table(MANY, header=["a", "a", "y"]))
    with pytest.raises(BadInputError, match='two columns are named "a"'):
        ingest(tmp_path / "a.csv", tmp_path / "d", label_column="last")


# -- values that are missing -----------------------------------------------------------------------------


def test_what_pandas_takes_for_missing_is_missing():
    from pandas._libs.parsers import STR_NA_VALUES

    assert {*STR_NA_VALUES, "?", "\\N"} == {*MISSING}


@pytest.mark.parametrize("marker", [m for m in MISSING if m])
def test_markers_in_numbers_categories_and_labels(tmp_path, marker):
    rows = [[str(k), "uv"[k % 2], str(k % 3 % 2)] for k in range(9)]
    rows[3][0] = rows[4][1] = marker
    (tmp_path / "a.csv").write_text(table(rows, header=["n", "w", "y"]))
    with pytest.raises(BadInputError, match=r'a.csv:5: column "n": .* the value is missing; --na VALUE'):
        ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y")
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", na=-1, shuffle=False)
    assert open_dataset(tmp_path / "d").feature_names() == ["n", "w=-1", "w=u", "w=v"]
    assert read_all(tmp_path / "d")[0][3:5].tolist() == [[-1, 0, 0, 1], [4, 1, 0, 0]]
    rows[5][2] = marker
    (tmp_path / "b.csv").write_text(table(rows, header=["n", "w", "y"]))
    with pytest.raises(BadInputError, match=r'b.csv:7: column "y": .* the row has no label'):
        ingest(tmp_path / "b.csv", tmp_path / "e", label_column="y", na=-1)
    report = ingest(tmp_path / "b.csv", tmp_path / "e", label_column="y", na=-1, on_error="skip")
    assert (report.rows, report.skipped, open_dataset(tmp_path / "e").meta.classes) == (8, 1, [0, 1])
    (tmp_path / "t.csv").write_text(f"text,label\na b,x\nc d,{marker}\n")
    with pytest.raises(BadInputError, match=r"t.csv:3: the label is empty"):
        ingest(tmp_path / "t.csv", tmp_path / "f", text_column="text")


@pytest.mark.parametrize(
    ("marker", "texts"), [("-", ["-"]), (-999, ["-999", "-999.0", "-9.99e2"]), ("k. A.", ["k. A."])]
)
def test_other_markers(tmp_path, marker, texts):
    rows = [[str(k), "uv"[k % 2], str(k % 2)] for k in range(30)]
    for k, text in enumerate(texts):
        rows[k][0] = text
    (tmp_path / "a.csv").write_text(table(rows, header=["n", "w", "y"]))
    options = {"label_column": "y", "shuffle": False}
    report = ingest(tmp_path / "a.csv", tmp_path / "told", **options)
    assert any(f'--na-values "{marker}"' in notice for notice in report.notices) == (marker in texts)
    ingest(tmp_path / "a.csv", tmp_path / "d", na=7, na_values=marker, **options)
    assert read_all(tmp_path / "d")[0][:, 0].tolist() == [7.0] * len(texts) + [*range(len(texts), 30)]
    # the recipe knows them, for files and for frames
    ingest(tmp_path / "a.csv", tmp_path / "e", like=tmp_path / "d", shuffle=False)
    assert np.array_equal(read_all(tmp_path / "e")[0], read_all(tmp_path / "d")[0])
    frame = {"n": [*map(float, range(30))], "w": ["uv"[k % 2] for k in range(30)], "y": [0, 1] * 15}
    if not isinstance(marker, str):
        frame["n"][0] = float(marker)
        ingest(frame_of(frame), tmp_path / "f", like=tmp_path / "d", shuffle=False)
        assert read_all(tmp_path / "f")[0][:2, 0].tolist() == [7, 1]


def frame_of(columns):
    import pandas

    return pandas.DataFrame(columns)


def test_labels_that_are_numbers_but_for_one_word_are_named(tmp_path):
    (tmp_path / "a.csv").write_text(table([*MANY, ["1", "2", "-"]], header=["a", "b", "y"]))
    report = ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y")
    assert any(
        'labels are numbers but for "-"' in notice and "a.csv:32" in notice for notice in report.notices
    )
    with pytest.raises(BadInputError, match=r"a.csv:32: .* the row has no label"):
        ingest(tmp_path / "a.csv", tmp_path / "e", label_column="y", na_values="-")


# -- decimal marks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [["a", "b", "y"], None])
@pytest.mark.parametrize("given", [{}, {"separator": ";"}, {"separator": ";", "decimal": ","}])
def test_decimal_commas(tmp_path, header, given):
    rows = [[f"{k},5", f"{k}.{k:03},25" if k else "0,25", str(k % 2)] for k in range(30)]
    (tmp_path / "a.csv").write_text(
        "".join(";".join(row) + "\n" for row in ([header] if header else []) + rows)
    )
    report = ingest(tmp_path / "a.csv", tmp_path / "d", label_column="last", shuffle=False, **given)
    wanted = [[k + 0.5, 1000 * k + k + 0.25 if k else 0.25] for k in range(30)]
    assert read_all(tmp_path / "d")[0].tolist() == wanted
    assert any("--decimal ." in notice for notice in report.notices) == ("decimal" not in given)


@pytest.mark.parametrize("text", ["12%", "$5.20", '"1,234"', "5 €"])
def test_other_marks_are_named(tmp_path, text):
    (tmp_path / "a.csv").write_text(
        "a,y\n" + "".join(f"{text.replace('2', str(k))},{k % 2}\n" for k in range(10))
    )
    report = ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y")
    assert any('column "a" look like numbers' in notice for notice in report.notices)


# -- documents -------------------------------------------------------------------------------------------


def test_a_missing_column_of_documents_is_an_error_whatever_the_name(tmp_path):
    rows = [
        [str(k), ["a good, lovely film", "an awful film"][k % 2], ["pos", "neg"][k % 2]] for k in range(40)
    ]
    text = table(rows, header=["id", "text", "label"])
    run, _ = trained(
        tmp_path, text, text_column="text", label_column="label", method="sgd", params={"loss": "log"}
    )
    for name in ("a.csv", "a.txt", "stdin"):
        with pytest.raises(MismatchError, match=r'no column "text", .*"id", "Text": --text-column'):
            predicted(run, tmp_path, "id,Text\n7,lovely film\n8,awful film\n", name)
        found = predicted(run, tmp_path, "id,Text\n7,lovely film\n8,awful film\n", name, text_column="Text")
        assert found == predicted(run, tmp_path, "text\nlovely film\nawful film\n", name)
        assert found == predicted(run, tmp_path, "lovely film\nawful film\n", "lines.txt")
        assert [label for label, _ in found] == ["pos", "neg"]
    (tmp_path / "b.csv").write_text("id,text,class\n7,lovely film,pos\n")
    with pytest.raises(MismatchError, match='no column "label"'):
        distls.evaluate(run, tmp_path / "b.csv")
    assert distls.evaluate(run, tmp_path / "b.csv", label_column="class").error == 0


# -- what messages advise --------------------------------------------------------------------------------

FAULTS = [  # text, command, what the message advises
    ("n,w\n,u\n", "predict", ["--na", "0"]),
    ("n,w,z\n1,u,3\n", "predict", ["--ignore-columns", "z"]),
    ("n,w,z\n1,u,3\n", "predict", ["--unknown-features", "ignore"]),
    ("n,w,class\n1,u,c1\n2,u,c0\n", "evaluate", ["--label-column", "class"]),
    ("n,w,class\n1,u,c1\n2,u,c0\n", "calibrate", ["--label-column", "class"]),
    ("n^w\n1^u\n", "predict", ["--separator", "^"]),
    ("n,w,y\n,u,c1\n2,u,c0\n", "calibrate", ["--na", "0"]),
]


@pytest.fixture(scope="module")
def scoring(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("scoring"), table(ROWS, header=["n", "w", "y"]))[0]


@pytest.mark.parametrize(("text", "command", "advice"), FAULTS)
def test_the_advice_of_a_refusal_helps(scoring, tmp_path, text, command, advice):
    (tmp_path / "a.csv").write_text(text)
    call = [command, str(scoring), str(tmp_path / "a.csv"), "--quiet"]
    ran = CliRunner().invoke(cli, call)
    assert (ran.exit_code, advice[0] in ran.stderr) == (1, True)
    assert CliRunner().invoke(cli, [*call, *advice]).exit_code == 0


def test_options_of_files_are_refused_for_a_data_set(scoring):
    data = scoring.with_name("run-data")
    with pytest.raises(DistlsError, match="separator is for source files"):
        distls.evaluate(scoring, data, separator=";")
    with pytest.raises(TypeError, match="nonsense"):
        distls.evaluate(scoring, scoring.with_name("train.csv"), nonsense=1)
