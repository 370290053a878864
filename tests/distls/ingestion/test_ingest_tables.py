"""CSV and TSV to data sets: what a column is, names, bits, what a test set takes over, what is refused."""

import json
import shutil
import time

import ingest_helpers
import numpy as np
import pandas as pd
import pytest
from helpers import printed, raised
from ingest_helpers import file_bytes, small_ranges, sorted_rows  # noqa: F401
from table_helpers import HEADER, JOBS, OPTIONS, csv_text, expected, make_rows, write_rows

import distls
import distls.ingestion.request.source_plan
import distls.ingestion.survey
from distls import CsvOptions, ingest, open_dataset
from distls.ingestion.formats.csv_header import Expected, read_head
from distls.ingestion.formats.tables import choose_columns
from distls.ingestion.request.options import IngestOptions
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.testing.formats import read_all
from distls.workers.ingestion.records.messages import MISSING_VALUE, NO_NUMBER

pytestmark = pytest.mark.usefixtures("small_ranges")

# -- rows and names --------------------------------------------------------------------------------------


def test_numbers_and_categories_become_what_scikit_learn_makes(tmp_path):
    rows = make_rows()
    write_rows(tmp_path / "a.csv", rows, HEADER)
    report = ingest(tmp_path / "a.csv", tmp_path / "d", **OPTIONS, shuffle=False, partition_size=4000)
    x, y = read_all(tmp_path / "d")
    data = open_dataset(tmp_path / "d")
    assert np.array_equal(x, expected(rows))
    assert [data.meta.classes[code] for code in y] == [row[5] for row in rows]
    assert data.meta.classes == ["g0", "g1", "g2"]
    assert (data.meta.layout, data.meta.weighted, data.meta.weight_sum) == ("csr", True, 150.0)
    assert data.feature_names() == ["age", *(f"job={job}" for job in sorted(JOBS)), "size"]
    assert len(data) > 2
    baker = next(k for k, row in enumerate(rows) if not row[2].isdigit())
    assert report.notices == (
        'categorical column, with a feature for each value: "job" (5 values)',
        f'column "job" has numbers, such as 12, but also "{rows[baker][2]}" ({tmp_path}/a.csv:{baker + 2}): '
        "it is a category",
    )


def test_numbers_alone_are_dense(tmp_path):
    numbers = np.random.default_rng(0).integers(-5, 6, (200, 7))
    write_rows(tmp_path / "a.csv", numbers.tolist())
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column="last", shuffle=False, dtype="float64")
    x, y = read_all(tmp_path / "d")
    data = open_dataset(tmp_path / "d")
    assert np.array_equal(x, numbers[:, :6])
    assert np.array_equal(np.array(data.meta.classes)[y], numbers[:, 6])
    assert (data.meta.layout, data.meta.dtype, data.meta.zero_based) == ("dense", "float64", None)
    assert data.feature_names() == ["0", "1", "2", "3", "4", "5"]
    ingest(tmp_path / "a.csv", tmp_path / "e", label_column=-7, ignore_columns=[1, "-1"], shuffle=False)
    assert np.array_equal(read_all(tmp_path / "e")[0], numbers[:, 2:6])
    assert open_dataset(tmp_path / "e").feature_names() == ["2", "3", "4", "5"]


@pytest.mark.slow
@pytest.mark.parametrize("header", [None, HEADER])
def test_every_chunk_boundary_gives_the_same_rows(tmp_path, monkeypatch, header):
    rows = make_rows(6)
    text = b"\xef\xbb\xbf" + csv_text(rows, header).encode() + b"\n  \r\np,1,12,1,1,g1"
    (tmp_path / "a.csv").write_bytes(text)
    options = dict(zip(OPTIONS, ("group", "weight", "id") if header else (5, 4, 0), strict=True))
    found = []
    for size in [*range(1, 50, 4), *range(50, len(text) + 2, 11), 10**6]:
        monkeypatch.setattr(distls.ingestion.request.source_plan, "RANGE_BYTES", size)
        ingest(tmp_path / "a.csv", tmp_path / "d", **options, shuffle=False)
        found.append((read_all(tmp_path / "d")[0].tolist(), open_dataset(tmp_path / "d").feature_names()))
        shutil.rmtree(tmp_path / "d")
    assert all(each == found[0] for each in found)
    assert np.array_equal(found[0][0], expected([*rows, ["p", 1, "12", 1, 1, "g1"]]))


@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
def test_separators_are_found_out(tmp_path, separator):
    rows = make_rows(50)
    name = "a.csv" if separator == "|" else "a.txt"  # a bar is Vowpal Wabbit's too
    write_rows(tmp_path / name, rows, HEADER, delimiter=separator)
    ingest(tmp_path / name, tmp_path / "d", **OPTIONS, shuffle=False)
    assert np.array_equal(read_all(tmp_path / "d")[0], expected(rows))


def test_a_time_of_day_is_no_weight_of_a_set_of_labels(tmp_path):
    (tmp_path / "a.csv").write_text("0,13:28\n1,06:22\n0,00:32\n")
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column=0, shuffle=False)
    meta = open_dataset(tmp_path / "d").meta
    assert (meta.n_rows, meta.classes) == (3, [0, 1])


@pytest.mark.parametrize(("separator", "given"), [("\t", "tab"), (" ", "space"), (":", ":")])
def test_separators_that_are_given(tmp_path, separator, given):
    (tmp_path / "a").write_text(separator.join("12a") + "\n" + separator.join("34b") + "\n")
    ingest(tmp_path / "a", tmp_path / "d", format="csv", separator=given, label_column=2, shuffle=False)
    assert read_all(tmp_path / "d")[0].tolist() == [[1, 2], [3, 4]]


@pytest.mark.fast_cases("a,b\\\\n1", "x", ",b\\\\n1", r"0\.5")
@pytest.mark.parametrize(
    ("text", "names", "certain"),
    [
        ("a,b\n1,2\n3,4\n", ["a", "b"], True),
        ("1,2\n3,4\n", None, True),
        ("a,2\nb,4\n", None, True),  # a number in the first line
        ("x,y\nred,green\nblue,red\n", ["x", "y"], False),
        ("red,green\nblue,green\n", None, False),  # a value that comes again
        (",b\n1,2\n", ["0", "b"], False),  # an empty field is a missing value, or a name that is left out
        ("0,1,y\n5,1,2\n6,2,3\n", ["0", "1", "y"], False),  # numbers for names
        ("5,,y\n5,1,y\n6,2,z\n", None, True),
        ("0.5,7,w\n0.1,8,2\n", None, True),  # a fraction above fractions
    ],
)
def test_headers_are_found_out(tmp_path, text, names, certain):
    (tmp_path / "a.csv").write_text(text)
    report = ingest(tmp_path / "a.csv", tmp_path / "d", unlabelled=True, categorical=(0,), na=0)
    found = open_dataset(tmp_path / "d").meta.source["recipe"]["columns"]
    assert found == (names or [str(c) for c in range(text.split()[0].count(",") + 1)])
    taken = f"taken for {'names of columns; --header no' if names else 'a row; --header yes'} if it is not"
    guess = f"the first line of {tmp_path}/a.csv is {taken}"
    assert (guess in report.notices) != certain


def test_header_as_declared(tmp_path):
    (tmp_path / "a.csv").write_text(",7\n5,1\n6,2\n")
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column=1, header=True)
    data = open_dataset(tmp_path / "d")
    assert (data.meta.source["recipe"]["columns"], data.meta.n_rows) == (["0", "7"], 2)
    (tmp_path / "b.csv").write_text("a,b\n5,1\n6,2\n")
    ingest(tmp_path / "b.csv", tmp_path / "e", label_column=1, header="no")
    data = open_dataset(tmp_path / "e")
    assert (data.meta.classes, data.feature_names()) == (["1", "2", "b"], ["0=5", "0=6", "0=a"])


def test_an_index_of_pandas_is_left_out(tmp_path):
    # as DataFrame.to_csv writes it, here after rows were drawn
    (tmp_path / "a.csv").write_text(",age,job,y\n17,5,x,1\n3,6,z,2\n8,7,x,1\n")
    report = ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", shuffle=False)
    assert open_dataset(tmp_path / "d").feature_names() == ["age", "job=x", "job=z"]
    assert report.notices[0] == (
        "the first column has no name and numbers or names the rows, as an index: it is left out"
    )
    # data like them may have one or not
    (tmp_path / "b.csv").write_text("age,job,y\n6,z,2\n")
    (tmp_path / "c.csv").write_text(",age,job,y\n0,6,z,2\n")
    for name in ("b", "c"):
        ingest(tmp_path / f"{name}.csv", tmp_path / name, like=tmp_path / "d", shuffle=False)
        assert read_all(tmp_path / name)[0].tolist() == [[6, 0, 1]]
    # a role keeps it
    ingest(tmp_path / "a.csv", tmp_path / "e", label_column="y", categorical="0")
    assert open_dataset(tmp_path / "e").meta.n_features == 6


def test_columns_without_names_are_told_of_the_header(tmp_path):
    (tmp_path / "a.csv").write_text("a,1\nb,2\n")
    assert raised(ParameterError, ingest, tmp_path / "a.csv", tmp_path / "d", label_column="y").endswith(
        'has no column "y"; it has "0", "1"; --header yes if its first line names them; or remove lines before that'
    )


def test_a_category_that_shows_late_is_collected_from_the_start(tmp_path):
    rows = [[k % 40, k % 3] for k in range(2000)]
    rows[1990][0] = "-"
    write_rows(tmp_path / "a.csv", rows)
    report = ingest(tmp_path / "a.csv", tmp_path / "d", label_column=1, shuffle=False)
    names = [f"0={value}" for value in sorted([*map(str, range(40)), "-"])]
    assert open_dataset(tmp_path / "d").feature_names() == names
    x, _ = read_all(tmp_path / "d")
    assert [names[column] for column in x.argmax(axis=1)] == [f"0={row[0]}" for row in rows]
    assert (
        report.notices[1]
        == f'column "0" has numbers, such as 0, but also "-" ({tmp_path}/a.csv:1991): it is a category; '
        '--na-values "-" if that stands for no value'
    )


def test_declared_categories_and_replaced_values(tmp_path):
    (tmp_path / "a.csv").write_text("code,size,y\n1,NA,a\n01,2,b\n?,3,a\n")
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", categorical="code", na=-1, shuffle=False)
    assert open_dataset(tmp_path / "d").feature_names() == ["code=-1", "code=01", "code=1", "size"]
    assert read_all(tmp_path / "d")[0].tolist() == [[0, 0, 1, -1], [0, 1, 0, 2], [1, 0, 0, 3]]


def test_labels_are_numbers_words_or_a_target(tmp_path):
    def classes(text, **options):
        (tmp_path / "a.csv").write_text(text)
        ingest(tmp_path / "a.csv", tmp_path / "d", label_column=1, **options)
        meta = open_dataset(tmp_path / "d").meta
        shutil.rmtree(tmp_path / "d")
        return meta.target, meta.classes

    assert classes("1,7\n2,-3\n") == ("class", [-3, 7])
    assert classes("1,7\n2,b\n3,7.0\n") == ("class", ["7", "b"])
    assert classes("1,7\n2,0.5\n") == ("continuous", [])
    assert classes("1,07\n2,7\n") == ("class", ["07", "7"])
    assert classes("1,-12345678901234567\n2,7\n") == ("class", ["-12345678901234567", "7"])
    assert classes("1,-0\n2,+0\n3,1e1\n") == ("class", [0, 10])
    assert classes("1,7\n2,0.5\n", target="class") == ("class", [0.5, 7])


# -- bits ------------------------------------------------------------------------------------------------

# -- test data -------------------------------------------------------------------------------------------


@pytest.fixture
def training(tmp_path):
    rows = make_rows()
    write_rows(tmp_path / "train.csv", rows, HEADER)
    ingest(tmp_path / "train.csv", tmp_path / "train", **OPTIONS)
    return rows


def test_test_data_take_columns_by_name_in_any_order(tmp_path, training):
    order = [5, 2, 3, 1]  # without id and weight
    rows, header = [[row[c] for c in order] for row in training[:50]], [HEADER[c] for c in order]
    write_rows(tmp_path / "b.tsv", rows, header, delimiter="\t")
    ingest(tmp_path / "b.tsv", tmp_path / "b", like=tmp_path / "train", shuffle=False)
    x, y = read_all(tmp_path / "b")
    assert np.array_equal(x, expected(training)[:50])
    data = open_dataset(tmp_path / "b")
    assert [data.meta.classes[code] for code in y] == [row[5] for row in training[:50]]
    assert data.feature_names() == open_dataset(tmp_path / "train").feature_names()
    assert not data.meta.weighted
    # and of these data others, by place
    write_rows(tmp_path / "c.csv", [[row[c] for c in order[1:]] for row in training[:9]])
    ingest(tmp_path / "c.csv", tmp_path / "c", like=tmp_path / "b", unlabelled=True)
    assert np.array_equal(read_all(tmp_path / "c")[0], expected(training)[:9])


def test_unseen_categories_and_labels_of_test_data(tmp_path, training):
    rows = [["q", 7, "pilot", 1, 1, "g9"], ["r", 8, "baker", 2, 1, "g1"], ["s", 9, "cook", 3, 1, "g0"]]
    write_rows(tmp_path / "b.csv", rows, HEADER)
    report = ingest(tmp_path / "b.csv", tmp_path / "b", like=tmp_path / "train", shuffle=False)
    assert report.notices == (
        f"1 label not in {tmp_path}/train appended: g9",
        f"2 values of categories not seen in training ({tmp_path}/train), encoded as zeros; the first: "
        f'{tmp_path}/b.csv:2: column "job": "pilot"',
    )
    x, y = read_all(tmp_path / "b")
    assert x.tolist() == [[7, 0, 0, 0, 0, 0, 1], [8, 0, 0, 1, 0, 0, 2], [9, 0, 0, 0, 0, 0, 3]]
    assert y.tolist() == [3, 1, 0]


def test_test_data_that_do_not_go_with_the_training_data(tmp_path, training):
    def refusal(text, kind=MismatchError, **options):
        (tmp_path / "b.csv").write_text(text)
        found = ingest_helpers.refusal(kind, tmp_path / "b.csv", tmp_path / "b", like=tmp_path / "train", **options)
        return found.replace(str(tmp_path), "")

    assert refusal("age,job,group\n1,a,g0\n") == (
        '/b.csv: no column "size", which is a feature of /train; there are "age", "job", "group"'
    )
    assert refusal("age,job,size,new,group\n1,a,2,3,g0\n") == (
        '/b.csv: column "new" is none of /train; --ignore-columns leaves it out, --unknown-features ignore all like it'
    )
    assert refusal("1,2,3\n") == '/b.csv: 3 columns, but /train was made from 6; there are "0", "1", "2"'
    assert refusal("age,job,size,group\nx,a,2,g0\n", BadInputError) == (
        '/b.csv:2: column "age": "x": a value must be a decimal number; --na-values names texts that stand for no value'
    )
    assert refusal("age,job,size\n1,a,2\n") == (
        '/b.csv: no column "group", the labels of /train; --label-column names another one, and predict '
        'takes rows without labels; there are "age", "job", "size"'
    )
    good = "age,job,size,group\n1,a,2,g0\n"
    assert refusal(good, ParameterError, categorical="age") == (
        "like takes the categories of a data set; categorical is for new ones"
    )
    ingest(tmp_path / "b.csv", tmp_path / "na", like=tmp_path / "train", na=0)
    said = raised(MismatchError, ingest, tmp_path / "b.csv", tmp_path / "c", like=tmp_path / "na", na=1)
    assert said == f"na=1, but {tmp_path}/na has na=0"
    (tmp_path / "a.svm").write_text("1 1:1\n2 2:1\n")
    ingest(tmp_path / "a.svm", tmp_path / "svm")
    assert raised(MismatchError, ingest, tmp_path / "b.csv", tmp_path / "c", like=tmp_path / "svm") == (
        f"{tmp_path}/b.csv is a table, but {tmp_path}/svm has features of svmlight sources"
    )


def test_a_model_scores_and_refuses_tables(tmp_path, training):
    distls.fit("gls", tmp_path / "train", tmp_path / "run", params={"alpha": 1e-3}, passes=2)
    rows = make_rows(40, seed=2)
    write_rows(tmp_path / "b.csv", rows, HEADER)
    ingest(tmp_path / "b.csv", tmp_path / "b", like=tmp_path / "train")
    expected_error = distls.evaluate(tmp_path / "run", tmp_path / "b").error
    assert distls.evaluate(tmp_path / "run", tmp_path / "b.csv").error == expected_error
    # as many features, but others
    write_rows(tmp_path / "c.csv", [[*row[:2], f"{row[2]}!", *row[3:]] for row in rows], HEADER)
    ingest(tmp_path / "c.csv", tmp_path / "c", **OPTIONS)
    assert raised(MismatchError, distls.evaluate, tmp_path / "run", tmp_path / "c") == (
        f'feature 1 of {tmp_path}/c is "job=12!", but "job=12" in {tmp_path}/run; '
        "ingest it with --like the training data"
    )


def test_the_command_line_takes_every_option(tmp_path):
    write_rows(tmp_path / "a.txt", [*make_rows(30), ["q", "?", "baker", 1, 1, "g1"]], HEADER, delimiter=";")
    options = "--label-column group --weight-column weight --ignore-columns id --categorical age --na 0"
    options += " --separator ; --header yes --format csv --executor serial --quiet"
    printed("ingest", tmp_path / "a.txt", tmp_path / "d", *options.split())
    shown = json.loads(printed("info", tmp_path / "d", "--json"))
    names = open_dataset(tmp_path / "d").feature_names()
    assert shown["feature_names"] == {"count": len(names), "first": names[:20]}
    assert names[0] == "age=0"
    assert shown["source"]["recipe"]["na"] == "0"


# -- what is refused -------------------------------------------------------------------------------------


@pytest.mark.fast_cases("a,b\\\\n1,2\\\\n-options0", "a,b\\\\n1,2\\\\n,1\\\\n", "a,b\\\\n1,2\\\\n-2")
@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2\n", {"label_column": None},
         '{a}: name the column of labels with --label-column (or ingest --unlabelled); there are "a", "b"'),
        ("a,b,b\n1,2,3\n", {"header": "yes"},
         '{a}: two columns are named "b"; rename one of them, or give --header no if the line is a row'),
        ("a,b\n1,2\n1\n", {}, '{a}:3: "1": 1 field where there should be 2'),
        ("a,b\n1,2\n,1\n", {}, '{a}:3: column "a": "": ' + MISSING_VALUE),
        ("a,b\n1,2\ninf,1\n", {}, '{a}:3: column "a": "inf": a value must be finite'),
        ("a,b\n1,2\n3,NA\n", {}, '{a}:3: column "b": "NA": the row has no label; --drop unknown leaves such rows out'),
        ("a,b\n1,2\n\udcff,2\n", {}, '{a}:3: column "a": "\\xff": a category must be UTF-8 text; '
         "--encoding names its encoding, such as cp1252 or latin-1"),
        ("a,b\n1,2\n1,2\n", {}, "{a}: every label is 2; two classes are needed at least"),
        ("a,b\n", {}, "{a}: no rows"),
        ("a\0,\0b\0\n", {}, "{a}: not UTF-8 text; --encoding names its encoding, such as cp1252 or latin-1"),
        ("one\ntwo\n", {}, '{a}: no comma, tab, semicolon or bar in its first line ("one"); name its separator with'
         " --separator"),
        ("a,b\n1,2\n-2,3\n", {"transform": "log1p"}, "{a}:3: log1p of -2; values must be above -1"),
    ],
)  # fmt: skip
def test_refused_tables(tmp_path, text, options, message):
    (tmp_path / "a.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    said = raised(BadInputError, ingest, tmp_path / "a.csv", tmp_path / "d", **{"label_column": "last", **options})
    assert said == message.format(a=tmp_path / "a.csv")
    assert not (tmp_path / "d").exists()


@pytest.mark.fast_cases("options0", "options3", "options6", "options8", "options11")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_column": "z"}, 'label_column: {a} has no column "z"; it has "a", "b", "c"'),
        ({"label_column": 3}, 'label_column: {a} has no column "3"; it has "a", "b", "c"'),
        ({"ignore_columns": "a,-4"}, 'ignore_columns: {a} has no column "-4"; it has "a", "b", "c"'),
        ({"weight_column": "c"}, 'column "c" is given as label_column and as weight_column'),
        ({"ignore_columns": "c"}, 'column "c" is given as label_column and as ignore_columns'),
        ({"ignore_columns": "a,b"}, "{a}: no column is left for features"),
        ({"categorical": "c"}, 'categorical: column "c" is not a feature'),
        ({"unlabelled": True}, "unlabelled and label_column exclude each other; see ignore_columns"),
        ({"na": "none"}, "na must be the number that missing values stand for, not 'none'"),
        ({"separator": "ab"},
         "separator must be one character that is no letter, digit, quote, sign or point, not 'ab'"),
        ({"n_features": 9}, "n_features is not for tables of text, whose columns are the features"),
        ({"format": "svmlight"},
         "label_column is for sources of format text or csv or parquet or anndata or jsonl, these are svmlight"),
    ],
)  # fmt: skip
def test_refused_options(tmp_path, options, message):
    (tmp_path / "a.csv").write_text("a,b,c\n1,2,3\n4,5,6\n")
    said = raised(ParameterError, ingest, tmp_path / "a.csv", tmp_path / "d", **{"label_column": "c", **options})
    assert said == message.format(a=tmp_path / "a.csv")
    assert not (tmp_path / "d").exists()


def test_files_that_do_not_go_together(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    header = "its first line is not like that of {a}; one of them may be a header"
    for name, text, why in (
        ("c.csv", "1,2\n3,4\n", header),
        ("d.csv", "a,b,c\n1,2,3\n", 'its columns are not those of {a}: it has "c"'),
        ("e.csv", "a,c\n1,2\n", 'its columns are not those of {a}: it has no "b", and it has "c"'),
    ):
        (tmp_path / name).write_text(text)
        said = raised(BadInputError, ingest, [tmp_path / "a.csv", tmp_path / name], tmp_path / "d", label_column="b")
        assert said == f"{tmp_path}/{name}: {why.format(a=tmp_path / 'a.csv')}"


@pytest.mark.fast_cases(
    "columns0-options0-csv", "columns1-options1-gz", "columns2-options2-gz", "columns3-options3-parquet"
)
@pytest.mark.parametrize("written", ["csv", "gz", "parquet"])
@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (["x", "z", "label"], {}),
        (["x", "city", "z", "label"], {"id_column": "z"}),
        (["city", "x", "text", "z", "label"], {"kind": ["text=text"], "weight_column": "z", "n_features": 64}),
        (["text", "x", "label"], {"text_column": "text", "n_features": 64}),
    ],
)  # fmt: skip
def test_files_may_have_the_columns_in_another_order(tmp_path, columns, options, written):
    rows = range(24)
    values = {"x": [k + 0.5 for k in rows], "z": [7 * k % 5 + 1 for k in rows], "label": [k % 3 for k in rows]}
    values |= {"city": [f"city {k % 4}" for k in rows], "text": [f"some words {k % 5} about {k}" for k in rows]}
    frame = pd.DataFrame(values)[columns]

    def read(name, *parts):
        files = [tmp_path / f"{name}{k}.{'csv.gz' if written == 'gz' else written}" for k in range(len(parts))]
        for part, file in zip(parts, files, strict=True):
            (part.to_parquet if written == "parquet" else part.to_csv)(file, index=False)
        ingest(files, tmp_path / name, label_column="label", shuffle=False, **options)
        data = open_dataset(tmp_path / name)
        origins = map(data.origins.read, range(len(data) if "id_column" in options else 0))
        return *read_all(data), data.feature_names(), [text for each in origins for text in each.ids.texts()]

    one, several = read("one", frame), read("several", frame[:9], frame[columns[::-1]][9:])
    assert all(map(np.array_equal, one[:2], several[:2]))
    assert one[2:] == several[2:]


@pytest.mark.slow
def test_the_columns_of_a_wide_table_are_found_in_time_proportional_to_their_number():
    names = [f"column {c}" for c in range(50_000)]
    start = f"{','.join(names)}\n{','.join('1' for _ in names)}\n".encode()
    options = CsvOptions(label_column="last", ignore_columns=tuple(names[:20_000]))
    before = time.process_time()
    head = read_head(start, "a.csv", Expected(options, -1))
    columns, _ = choose_columns(head.columns, head.words, "a.csv", options, IngestOptions(), head.samples)
    # half a second; comparing each name with all before it takes half a minute
    assert time.process_time() - before < 5
    assert [feature.name for feature in columns.features] == names[20_000:-1]


def test_a_column_with_too_many_words_is_refused_or_declared(tmp_path, monkeypatch):
    monkeypatch.setattr(distls.ingestion.survey, "MOST_GUESSED", 10)
    rows = [[f"{k}x" if k == 700 else k, k % 2] for k in range(1000)]
    write_rows(tmp_path / "a.csv", rows, ["n", "y"])
    assert raised(BadInputError, ingest, tmp_path / "a.csv", tmp_path / "d", label_column="y") == (
        f'{tmp_path}/a.csv:702: column "n": "700x": not a number, and the column has more than 10 values: correct it; '
        'if it holds documents, read them with --text-column "n"; else take its values as categories with '
        '--categorical "n", or leave it out with --ignore-columns "n"'
    )
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", categorical="n")
    assert open_dataset(tmp_path / "d").meta.n_features == 1000
    monkeypatch.setattr(distls.ingestion.survey, "MOST_DECLARED", 99)
    report = ingest(tmp_path / "a.csv", tmp_path / "e", label_column="y", categorical="n")
    assert any("hashed into 99 features" in notice for notice in report.notices)
    assert open_dataset(tmp_path / "e").meta.n_features == 99


def test_skipped_rows_tell_nothing_of_the_columns(tmp_path):
    lines = ["a,job,y", *(f"{k},baker,{k % 2}" for k in range(200))]
    lines[50] = "x,smith,1,1"
    lines[120] = "7,cook"
    lines[130] = ",baker,1"
    (tmp_path / "a.csv").write_text("\n".join(lines))
    report = ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", on_error="skip", shuffle=False)
    data = open_dataset(tmp_path / "d")
    assert data.feature_names() == ["a", "job=baker"]
    assert data.meta.n_rows == 197
    assert (report.rows, report.skipped) == (197, 3)
    assert report.skipped_lines == (
        f'{tmp_path}/a.csv:51: column "a": "x": a value must be a decimal number{NO_NUMBER}',
        f'{tmp_path}/a.csv:121: "7,cook": 2 fields where there should be 3',
        f'{tmp_path}/a.csv:131: column "a": "": {MISSING_VALUE}',
    )
