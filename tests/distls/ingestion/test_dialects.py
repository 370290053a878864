"""A table is read at prediction as at training: separator, header, decimal mark, what stands for no value."""

import csv
import gzip
import io
import json
from dataclasses import replace

import numpy as np
import pandas
import pytest
from helpers import distls as run_command
from helpers import printed, refuses
from pandas._libs.parsers import STR_NA_VALUES

import distls
from distls import ingest, open_dataset
from distls.ingestion.request.like import like_model
from distls.storage.errors import BadInputError, DistlsError, MismatchError
from distls.storage.model.model import load_model
from distls.testing.formats import read_all
from distls.workers.ingestion.formats.table_columns import MISSING

ROWS = [[f"{k % 7}.5", "uvw"[k % 3], f"c{int(k % 7 > 3)}"] for k in range(42)]
NUMBERS = [[str(k), str(2 * k), str(k % 2)] for k in range(30)]
NAMES = ["n", "w", "y"]


def table(rows, header=(), separator=",", decimal="."):
    """Return rows as text, quoted where they have to be."""
    file = io.StringIO()
    lines = [[str(field).replace(".", decimal) for field in row] for row in rows]
    csv.writer(file, delimiter=separator).writerows([header, *lines] if header else lines)
    return file.getvalue()


def trained(tmp_path, text, name="train.csv", **options):
    (tmp_path / name).write_text(text)
    options = {"label_column": "last", "method": "gls", "params": {"alpha": 1e-3}, "transform": ()} | options
    distls.train(tmp_path / name, tmp_path / "run", notify=str, **options)
    return tmp_path / "run"


def predicted(run, tmp_path, text, name="new.csv", **options):
    """Return labels and scores."""
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    distls.predict(run, tmp_path / name, tmp_path / "out.csv", overwrite=True, notify=str, **options)
    with (tmp_path / "out.csv").open(newline="") as file:
        return [(row["label"], row["score"]) for row in csv.DictReader(file)]


def ingested(tmp_path, text, **options):
    """Return the report, the rows in their order, and the data set."""
    place = tmp_path / f"d{len([*tmp_path.iterdir()])}"
    (tmp_path / "a.csv").write_text(text)
    report = ingest(tmp_path / "a.csv", place, shuffle=False, **options)
    return report, read_all(place)[0], open_dataset(place)


# -- what was known at training --------------------------------------------------------------------------


@pytest.mark.slow_cases(" .", r"\^", ":", "~", r"\|", ".*none")
@pytest.mark.parametrize("header", [NAMES, ()], ids=["header", "none"])
@pytest.mark.parametrize("marks", [" .", ";,", "^.", ":,", "~.", "|,"])
def test_every_command_reads_as_training_did(tmp_path, marks, header):
    separator, decimal = marks
    text = table(ROWS, header, separator, decimal)
    given = {"format": "csv", "separator": separator, "header": bool(header)}
    run = trained(tmp_path, text, "train.txt", **given)
    expected = distls.evaluate(run, tmp_path / "run-data").to_json()
    found = distls.evaluate(run, tmp_path / "train.txt").to_json()
    # sums over rows in another order
    for name in ("calibration_error", "log_loss"):
        assert found.pop(name) == pytest.approx(expected.pop(name), rel=1e-9)
    assert len(found.pop("reliability")) == len(expected.pop("reliability"))
    assert found == expected
    assert distls.calibrate(run, tmp_path / "train.txt").evaluation.n_rows == len(ROWS)
    ingest(tmp_path / "train.txt", tmp_path / "like", like=run, shuffle=False)
    ingest(tmp_path / "train.txt", tmp_path / "own", label_column="last", shuffle=False, **given)
    assert np.array_equal(read_all(tmp_path / "like")[0], read_all(tmp_path / "own")[0])
    rows = table([row[:2] for row in ROWS], header[:2], separator, decimal)
    found = predicted(run, tmp_path, rows, "new.txt")
    assert found == predicted(run, tmp_path, gzip.compress(rows.encode()), "new.txt.gz")
    assert len(found) == len(ROWS)
    if header:  # names lead to the columns in any order, between other separators, in a frame
        assert predicted(run, tmp_path, table([row[1::-1] for row in ROWS], ["w", "n"])) == found
        frame = {"w": [row[1] for row in ROWS], "n": [float(row[0]) for row in ROWS]}
        assert distls.load_model(run).predict(frame).tolist() == [label for label, _ in found]


def test_a_model_without_names_never_looks_for_them(tmp_path):
    numbers = [[0, 0, "no"], [0, 1, "no"], [1, 0, "yes"], [1, 1, "yes"]]
    run = trained(tmp_path, table(numbers * 10))
    for first in numbers:
        rows = [first, *numbers]
        labels, text = [row[2] for row in rows], table([row[:2] for row in rows])
        assert [label for label, _ in predicted(run, tmp_path, text)] == labels
        (tmp_path / "test.csv").write_text(table(rows))
        assert distls.evaluate(run, tmp_path / "test.csv").n_rows == 5
    # words in the first line are a header all the same
    assert [label for label, _ in predicted(run, tmp_path, "a,b\n" + text)] == labels


@pytest.mark.parametrize("named", ["tab", "space"])
def test_a_separator_by_its_name_may_be_a_column_too(tmp_path, named):
    mark = {"tab": "\t", "space": " "}[named]
    text = table([[k, k // 20] for k in range(40)], [named, "y"], mark)
    assert ingested(tmp_path, text, separator=named, label_column="y")[1].shape == (40, 1)


@pytest.mark.parametrize("header", [["x"], []])
def test_a_table_of_one_column_needs_no_separator(tmp_path, header):
    run = trained(tmp_path, table([[f"{k}.5", k // 20] for k in range(40)], header and ["x", "y"], ";"))
    text = table([["3.5"], ["33.5"]], header)
    assert [label for label, _ in predicted(run, tmp_path, text)] == ["0", "1"]
    assert ingested(tmp_path, text, unlabelled=True, header=bool(header))[1].tolist() == [[3.5], [33.5]]


def test_models_of_earlier_versions_keep_their_categories(tmp_path):
    """Fewer texts stood for no value, and a recipe did not say how a table was written."""
    rows = [[k % 5, ["Nona", "b"][k % 2], ["NULK", "x"][k % 2]] for k in range(20)]
    model = load_model(trained(tmp_path, table(rows, NAMES)))
    source = json.loads(json.dumps(model.source).replace("Nona", "None"))
    del source["recipe"]["dialect"]
    old = like_model(replace(model, source=source, classes=["NULL", "x"]), "old")
    text = table(rows, NAMES).replace("Nona", "None").replace("NULK", "NULL")
    _, x, data = ingested(tmp_path, text, like=old)
    assert (x[:, 1:].tolist(), data.meta.label_counts) == ([[1, 0], [0, 1]] * 10, [10, 10])
    refuses(BadInputError, "value is missing", ingested, tmp_path, "n,w\nN/A,b\n", like=old, unlabelled=True)


# -- the first line --------------------------------------------------------------------------------------


@pytest.mark.fast_cases("header0", "header3", "header6", "header9")
@pytest.mark.parametrize(
    ("header", "rows", "label"),
    [
        (["0", "1", "y"], NUMBERS, "last"),
        (["2019", "2020", "cls"], [[*row[:2], f"c{row[2]}"] for row in NUMBERS], -1),
        (["450.5", "451.0", "y"], [[f"{k}.5", f"{k}.1", k % 2] for k in range(30)], 2),
        (["a", "", "y"], NUMBERS, "last"),
        (["0", "1", "2"], [[*row[:2], 3 + int(row[2])] for row in NUMBERS], "last"),
        (["", "0", "1", "y"], [[k, *row] for k, row in enumerate(NUMBERS)], "last"),
        (["1", "2", "3"], [[f"n{int(row[0]) % 3}", row[1], row[2]] for row in NUMBERS], "last"),
        ([], [[*row[:2], f"c{row[2]}"] for row in NUMBERS], "last"),
        ([], [["u", "1", "c1"], *([*row[:2], f"c{row[2]}"] for row in NUMBERS)], "last"),
        ([], [[f"{k}.5", f"{k}.1", f"s{k // 15}"] for k in range(30)], "last"),
    ],
)  # fmt: skip
def test_the_first_line_is_decided_by_all_that_is_known(tmp_path, header, rows, label):
    report, _, data = ingested(tmp_path, table(rows, header), label_column=label)
    assert (data.meta.n_rows, len(data.meta.classes)) == (len(rows), 2)
    assert any("--header no" in notice for notice in report.notices) == bool(header)
    if header:
        text = table(rows, header)
        assert ingested(tmp_path, text, label_column=label, header="no", na=0)[0].rows == len(rows) + 1
        named = [*header[:-1], "label"]
        assert not any("--header" in n for n in ingested(tmp_path, table(rows, named), label_column="label")[0].notices)


# -- values that are missing -----------------------------------------------------------------------------


def test_what_pandas_takes_for_missing_is_missing(tmp_path):
    assert {*STR_NA_VALUES, "?", "\\N"} == {*MISSING}
    n = len(MISSING)
    good = [[k, "uv"[k % 2], k % 2] for k in range(9)]
    rows = [*good, *([m, "u", 0] for m in MISSING), *(["1", m, 1] for m in MISSING)]
    with pytest.raises(BadInputError, match=r'a.csv:11: column "n": .* the value is missing; --na VALUE'):
        ingested(tmp_path, table(rows, NAMES), label_column="y")
    _, x, data = ingested(tmp_path, table(rows, NAMES), label_column="y", na=-1)
    assert data.feature_names() == ["n", "w=-1", "w=u", "w=v"]
    assert x[9:].tolist() == [[-1, 0, 1, 0]] * n + [[1, 1, 0, 0]] * n
    rows = [*good, *(["1", "u", m] for m in MISSING)]
    with pytest.raises(BadInputError, match=r'a.csv:11: column "y": .* the row has no label'):
        ingested(tmp_path, table(rows, NAMES), label_column="y")
    report, _, data = ingested(tmp_path, table(rows, NAMES), label_column="y", on_error="skip")
    assert (report.rows, report.skipped, data.meta.classes) == (9, n, [0, 1])
    documents = table([["a b", "x"], ["c d", "y"], *(["e", m] for m in MISSING)], ["text", "label"])
    report, *_ = ingested(tmp_path, documents, text_column="text", on_error="skip")
    assert (report.rows, report.skipped) == (2, n)


@pytest.mark.parametrize(("marker", "texts"), [("-", ["-"]), (-999, ["-999", "-999.0", "-9.99e2"])])
def test_other_markers(tmp_path, marker, texts):
    rows = [[text, *row[1:]] for text, row in zip(texts, NUMBERS, strict=False)] + NUMBERS[len(texts) :]
    text = table(rows, NAMES)
    report, *_ = ingested(tmp_path, text, label_column="y")
    assert any(f'--na-values "{marker}"' in notice for notice in report.notices) == (marker == "-")
    _, x, data = ingested(tmp_path, text, label_column="y", na=7, na_values=marker)
    assert x[:, 0].tolist() == [7.0] * len(texts) + [*range(len(texts), 30)]
    # the recipe knows them, for files and for frames
    assert np.array_equal(ingested(tmp_path, text, like=data.path)[1], x)
    frame = pandas.DataFrame({"n": [-999, 1], "w": [1.5, 2], "y": [0, 1]})
    ingest(frame, tmp_path / "frame", like=data.path, shuffle=False)
    assert read_all(tmp_path / "frame")[0][:, 0].tolist() == [-999 if marker == "-" else 7, 1]


def test_labels_that_are_numbers_but_for_one_word_are_named(tmp_path):
    text = table([*NUMBERS, ["1", "2", "-"]], NAMES)
    (notice,) = ingested(tmp_path, text, label_column="y")[0].notices
    assert notice.startswith(f'labels are numbers but for "-" ({tmp_path}/a.csv:32)')
    with pytest.raises(BadInputError, match=r"a.csv:32: .* the row has no label"):
        ingested(tmp_path, text, label_column="y", na_values="-")


# -- decimal marks ---------------------------------------------------------------------------------------


@pytest.mark.fast_cases("given0-header0", "given2-header1")
@pytest.mark.parametrize("header", [NAMES, []])
@pytest.mark.parametrize("given", [{}, {"separator": ";"}, {"separator": ";", "decimal": ","}])
def test_decimal_commas(tmp_path, header, given):
    rows = [[f"{k},5", f"{k}.{k:03},25" if k else "0,25", k % 2] for k in range(30)]
    text = "".join(";".join(map(str, row)) + "\n" for row in ([header] if header else []) + rows)
    report, x, _ = ingested(tmp_path, text, label_column="last", **given)
    assert x.tolist() == [[k + 0.5, 1000 * k + k + 0.25] for k in range(30)]
    assert any("--decimal ." in notice for notice in report.notices) == ("decimal" not in given)


@pytest.mark.parametrize("text", ["12%", "$5.20", '"1,234"', "5 €"])
def test_other_marks_are_read(tmp_path, text):
    text = "a,y\n" + "".join(f"{text.replace('2', str(k))},{k % 2}\n" for k in range(10))
    report, x, _ = ingested(tmp_path, text, label_column="y")
    assert any('"a" is numbers with marks' in notice for notice in report.notices)
    assert len({*x[:, 0].tolist()}) == (1 if "2" not in text and "5 €" in text else 10)


NEGATIVE = {
    "12.50-": -12.5, "1,000.00-": -1000.0, "(12.50)": -12.5, ".5D+02": 50.0, "-.5D+02": -50.0, "\u22121.5E+3": -1500.0,
    "\u22125e\u22121": -0.5, "1.25E+2": 125.0, "3.25": 3.25,
}  # fmt: skip


def test_numbers_of_accounts_and_of_fortran_are_read(tmp_path):
    texts = [[*NEGATIVE][k % len(NEGATIVE)] for k in range(40)]
    text = "a;y\n" + "".join(f"{text};{k % 2}\n" for k, text in enumerate(texts))
    report, x, _ = ingested(tmp_path, text, label_column="y")
    assert any('"a" is numbers with marks' in notice for notice in report.notices)
    assert x[:, 0].tolist() == [NEGATIVE[text] for text in texts]


@pytest.mark.parametrize("source", ["csv", "frame"])
def test_hexadecimal_numbers_are_read(tmp_path, source):
    """Those that float64 keeps; addresses and digests are words."""
    numbers = [2**52 - 1, -4096, *range(0, 3 * 28, 3)]
    words = [f"0x{n % 5:040x}" for n in numbers]
    rows = pandas.DataFrame({"a": [[hex(n), f"0X{n:04X}"][n % 2] for n in numbers], "d": words, "y": [0, 1] * 15})
    later = rows.assign(a="0x1FG")
    if source == "csv":
        rows.to_csv(tmp_path / "a.csv", index=False)
        later.to_csv(tmp_path / "b.csv", index=False)
        rows, later = tmp_path / "a.csv", tmp_path / "b.csv"
    report = ingest(rows, tmp_path / "d", label_column="y", shuffle=False, dtype="float64")
    assert any('"a" is hexadecimal numbers; --kind NAME=KIND' in notice for notice in report.notices)
    data = open_dataset(tmp_path / "d")
    assert data.feature_names()[0] == "a"
    assert data.meta.n_features == 6
    assert read_all(data)[0][:, 0].tolist() == numbers
    with pytest.raises(BadInputError, match='"0x1FG": a value must be a decimal number'):
        ingest(later, tmp_path / "e", like=tmp_path / "d")


def test_hexadecimal_numbers_among_others_are_numbers_with_marks(tmp_path):
    text = "a;y\n" + "".join(f"{['0x1F', '1,5', '7%'][k % 3]};{k % 2}\n" for k in range(30))
    report, _, _ = ingested(tmp_path, text, label_column="y")
    assert any('"a" is numbers with marks' in notice for notice in report.notices)


@pytest.mark.fast_cases("18", "1-2", r"2\.0D4")
@pytest.mark.parametrize("text", ["18-+", "A-", "12-B", "1-2", "2024-", "-12.5-", "2.0D4"])
def test_words_with_such_marks_stay_words(tmp_path, text):
    text = "a;b;y\n" + "".join(f"{text};{k}.5;{k % 2}\n" for k in range(10))
    report, _, _ = ingested(tmp_path, text, label_column="y")
    assert any("categor" in notice and '"a"' in notice for notice in report.notices)


def test_numbers_with_a_unit_are_named(tmp_path):
    text = "a;b;y\n" + "".join(f"{k % 9} kg;{k % 9}{'uv'[k % 2]};{k % 2}\n" for k in range(20))
    report, _, _ = ingested(tmp_path, text, label_column="y")
    (notice,) = [notice for notice in report.notices if "with a unit" in notice]
    assert '"a"' in notice


# -- documents -------------------------------------------------------------------------------------------


def test_a_missing_column_of_documents_is_an_error_whatever_the_name(tmp_path):
    rows = [[k, ["a good, lovely film", "an awful film"][k % 2], ["pos", "neg"][k % 2]] for k in range(40)]
    options = {"text_column": "text", "label_column": "label", "method": "sgd", "params": {"loss": "log"}}
    run = trained(tmp_path, table(rows, ["id", "text", "label"]), **options)
    text = "id,Text\n7,lovely film\n8,awful film\n"
    expected = predicted(run, tmp_path, "lovely film\nawful film\n", "lines.txt")
    assert [label for label, _ in expected] == ["pos", "neg"]
    for name in ("a.csv", "a.txt", "stdin"):
        refuses(MismatchError, r'no column "text", .*"id", "Text": --text-column', predicted, run, tmp_path, text, name)
        assert predicted(run, tmp_path, text, name, text_column="Text") == expected
        assert predicted(run, tmp_path, "text\nlovely film\nawful film\n", name) == expected
    (tmp_path / "b.csv").write_text("id,text,class\n7,lovely film,pos\n")
    refuses(MismatchError, 'no column "label"', distls.evaluate, run, tmp_path / "b.csv")
    assert distls.evaluate(run, tmp_path / "b.csv", label_column="class").error == 0


# -- what messages advise --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scoring(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("scoring"), table(ROWS, NAMES))


@pytest.mark.fast_cases("n,w\\\\n", "n,w,class\\\\n1,u,c1\\\\n2,u,c0\\\\n-evaluate", "n,w,y\\\\n")
@pytest.mark.parametrize(
    ("text", "command", "advice"),
    [
        ("n,w\n,u\n", "predict", ["--na", "0"]),
        ("n,w,z\n1,u,3\n", "predict", ["--ignore-columns", "z"]),
        ("n,w,z\n1,u,3\n", "predict", ["--unknown-features", "ignore"]),
        ("n,w,class\n1,u,c1\n2,u,c0\n", "evaluate", ["--label-column", "class"]),
        ("n,w,class\n1,u,c1\n2,u,c0\n", "calibrate", ["--label-column", "class"]),
        ("n^w\n1^u\n", "predict", ["--separator", "^"]),
        ("n,w,y\n,u,c1\n2,u,c0\n", "calibrate", ["--na", "0"]),
    ],
)
def test_the_advice_of_a_refusal_helps(scoring, tmp_path, text, command, advice):
    (tmp_path / "a.csv").write_text(text)
    call = [command, scoring, tmp_path / "a.csv", "--quiet"]
    ran = run_command(*call)
    assert (ran.code, advice[0] in ran.err) == (1, True)
    printed(*call, *advice)


def test_options_of_files_are_refused_for_a_data_set(scoring):
    with pytest.raises(DistlsError, match="separator is for source files"):
        distls.evaluate(scoring, scoring.with_name("run-data"), separator=";")
    refuses(TypeError, "nonsense", distls.evaluate, scoring, scoring.with_name("train.csv"), nonsense=1)
