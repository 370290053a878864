"""Parquet to data sets: columns by type, lists, row groups, bits, test data, what is refused."""

import sys

import ingest_helpers
import numpy as np
import pytest
from helpers import raised
from table_helpers import HEADER, JOBS, OPTIONS, expected, make_rows, write_rows

import distls.ingestion.survey
from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.testing.formats import read_all
from distls.workers.ingestion.formats import parquet_files
from distls.workers.ingestion.records.messages import MISSING_VALUE

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def write(path, columns, group=40):
    pq.write_table(pa.table(columns), path, row_group_size=group)


def as_columns(rows):
    return dict(zip(HEADER, map(list, zip(*rows, strict=True)), strict=True))


def dictionary(values):
    return pa.array(values).dictionary_encode()


# -- rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encode", [pa.array, dictionary, lambda v: pa.array(v, pa.large_string())])
def test_it_gives_what_csv_gives(tmp_path, encode):
    rows = make_rows()
    columns = as_columns(rows)
    columns |= {name: encode(columns[name]) for name in ("job", "group")}
    write(tmp_path / "a.parquet", columns)
    write_rows(tmp_path / "a.csv", rows, HEADER)
    options = {**OPTIONS, "shuffle": False, "partition_size": 4000}
    ingest(tmp_path / "a.parquet", tmp_path / "d", **options)
    ingest(tmp_path / "a.csv", tmp_path / "e", **options)
    x, y = read_all(tmp_path / "d")
    assert np.array_equal(x, expected(rows))
    data, other = open_dataset(tmp_path / "d"), open_dataset(tmp_path / "e")
    assert np.array_equal(y, read_all(tmp_path / "e")[1])
    assert data.feature_names() == other.feature_names()
    assert (data.meta.classes, data.meta.weight_sum) == (other.meta.classes, other.meta.weight_sum)
    recipe = other.meta.source["recipe"]
    assert recipe == data.meta.source["recipe"] | {"dialect": recipe["dialect"]}


def test_numbers_of_every_type_are_dense(tmp_path):
    values = np.arange(90) % 7
    types = [pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.decimal128(9, 2), pa.float16()]
    columns = {str(t): pa.array(values, pa.float64()).cast(t) for t in types[:4]}
    columns["bool"] = pa.array(values > 3)
    columns["decimal"] = pa.array([str(v) for v in values.tolist()]).cast(types[5])
    columns["half"] = pa.array(values.astype(np.float16))
    columns["y"] = values
    write(tmp_path / "a.parquet", columns)
    ingest(tmp_path / "a.parquet", tmp_path / "d", label_column="y", shuffle=False)
    x, y = read_all(tmp_path / "d")
    wanted = [values] * 4 + [values > 3] + [values] * 2
    assert np.array_equal(x, np.array(wanted, dtype=np.float32).T)
    assert np.array_equal(y, values)
    data = open_dataset(tmp_path / "d")
    assert (data.meta.layout, data.feature_names()) == ("dense", list(columns)[:-1])


def make_pairs(n_rows=150, width=60, seed=1):
    random = np.random.default_rng(seed)
    indices = [np.sort(random.choice(width, random.integers(0, 9), replace=False)).tolist() for _ in range(n_rows)]
    values = [random.normal(size=len(row)).astype(np.float32).tolist() for row in indices]
    x = np.zeros((n_rows, width), dtype=np.float32)
    for row, (columns, entries) in enumerate(zip(indices, values, strict=True)):
        x[row, columns] = entries
    return x, indices, values


@pytest.mark.parametrize("names", [("indices", "values"), ("i", "v")])
def test_two_columns_of_lists_are_sparse_rows(tmp_path, names):
    x, indices, values = make_pairs()
    shuffled = [list(reversed(row)) for row in indices]  # in any order
    backward = [list(reversed(row)) for row in values]
    y = [f"c{k % 3}" for k in range(150)]
    write(tmp_path / "a.parquet", {names[0]: shuffled, names[1]: backward, "y": y})
    options = {} if names[0] == "indices" else {"list_columns": "i,v"}
    ingest(tmp_path / "a.parquet", tmp_path / "d", label_column="y", shuffle=False, **options)
    data, got = open_dataset(tmp_path / "d"), read_all(tmp_path / "d")[0]
    width = max(max(row, default=0) for row in indices) + 1
    assert (data.meta.layout, data.meta.n_features, data.feature_names()) == ("csr", width, None)
    assert np.array_equal(got, x[:, :width])
    ingest(tmp_path / "a.parquet", tmp_path / "e", label_column="y", shuffle=False, n_features=100, **options)
    assert np.array_equal(read_all(tmp_path / "e")[0][:, :60], x)
    assert open_dataset(tmp_path / "e").meta.n_features == 100
    write(tmp_path / "b.parquet", {names[0]: [[3]], names[1]: [[2.0]], "y": ["c1"]})
    ingest(tmp_path / "b.parquet", tmp_path / "b", like=tmp_path / "e")
    assert read_all(tmp_path / "b")[0][0, :5].tolist() == [0, 0, 0, 2, 0]


def test_lists_of_one_length_are_dense_rows(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)
    y = (vectors[:, 0] > 0).astype(int)
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 16)
    for name, column in (("fixed", fixed), ("lists", pa.array(vectors.tolist()))):
        write(tmp_path / name, {"a": vectors[:, 0], "e": column, "y": y})
        ingest(tmp_path / name, tmp_path / f"d-{name}", label_column="y", shuffle=False)
        data = open_dataset(tmp_path / f"d-{name}")
        assert np.array_equal(read_all(data.path)[0], np.column_stack([vectors[:, 0], vectors]))
        assert data.meta.layout == "dense"
        assert data.feature_names() == ["a", *(f"e[{k}]" for k in range(16))]


def test_all_kinds_together(tmp_path):
    x, indices, values = make_pairs(50)
    words = [JOBS[k % 3] for k in range(50)]
    vectors = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    columns = {"n": x[:, 0], "w": words, "indices": indices, "values": values, "e": vectors.tolist()}
    write(tmp_path / "a.parquet", {**columns, "y": np.arange(50) % 2})
    ingest(tmp_path / "a.parquet", tmp_path / "d", label_column="y", shuffle=False, n_features=66)
    onehot = [[float(word == job) for job in sorted(JOBS[:3])] for word in words]
    assert np.array_equal(read_all(tmp_path / "d")[0], np.column_stack([x[:, 0], onehot, x, vectors]))


def test_pandas_row_labels_are_no_features(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "y": ["p", "q"]}, index=["r1", "r2"])
    frame.to_parquet(tmp_path / "a.parquet")
    ingest(tmp_path / "a.parquet", tmp_path / "d", label_column="y")
    assert open_dataset(tmp_path / "d").feature_names() == ["a"]


def test_missing_values_are_replaced(tmp_path):
    columns = {"n": [1.0, None, float("nan")], "w": ["a", None, "b"], "y": [0, 1, 2]}
    write(tmp_path / "a.parquet", columns)
    ingest(tmp_path / "a.parquet", tmp_path / "d", label_column="y", na=-1, shuffle=False)
    assert open_dataset(tmp_path / "d").feature_names() == ["n", "w=-1", "w=a", "w=b"]
    assert read_all(tmp_path / "d")[0].tolist() == [[1, 0, 1, 0], [-1, 1, 0, 0], [-1, 0, 0, 1]]


# -- bits and test data ----------------------------------------------------------------------------------


def test_small_blocks_give_the_same_rows(tmp_path, monkeypatch):
    rows = make_rows(100)
    write(tmp_path / "a.parquet", as_columns(rows), group=100)
    monkeypatch.setattr("distls.workers.ingestion.formats.parquet._LARGEST_BATCH", 7)
    monkeypatch.setattr("distls.ingestion.request.source_plan.RANGE_BYTES", 2)
    ingest(tmp_path / "a.parquet", tmp_path / "d", **OPTIONS, shuffle=False)
    assert np.array_equal(read_all(tmp_path / "d")[0], expected(rows))


def test_test_data_from_csv_and_parquet_alike(tmp_path):
    rows = make_rows()
    write(tmp_path / "a.parquet", as_columns(rows))
    ingest(tmp_path / "a.parquet", tmp_path / "train", **OPTIONS)
    test = [["q", 7, "pilot", 1, 1, "g1"], *make_rows(20, seed=5)]
    write(tmp_path / "b.parquet", as_columns(test))
    write_rows(tmp_path / "b.csv", test, HEADER)
    reports = [
        ingest(tmp_path / name, tmp_path / f"d-{name}", like=tmp_path / "train", shuffle=False)
        for name in ("b.parquet", "b.csv")
    ]
    one, other = (read_all(tmp_path / f"d-{name}") for name in ("b.parquet", "b.csv"))
    assert np.array_equal(one[0], other[0])
    assert np.array_equal(one[1], other[1])
    assert [report.notices[0].rpartition("first: ")[2] for report in reports] == [
        f'{tmp_path}/b.parquet, row 0: column "job": "pilot"',
        f'{tmp_path}/b.csv:2: column "job": "pilot"',
    ]


def test_test_data_of_a_table_without_names(tmp_path):
    rows = make_rows()
    write_rows(tmp_path / "a.csv", rows)
    ingest(tmp_path / "a.csv", tmp_path / "train", label_column=5, weight_column=4, ignore_columns=[0])
    write(tmp_path / "b.parquet", as_columns(rows))
    ingest(tmp_path / "b.parquet", tmp_path / "b", like=tmp_path / "train", shuffle=False)
    data = open_dataset(tmp_path / "b")
    assert np.array_equal(read_all(tmp_path / "b")[0], expected(rows))
    assert (data.meta.weighted, data.feature_names()[0]) == (True, "1")
    # and the other way round
    ingest(tmp_path / "a.csv", tmp_path / "c", like=tmp_path / "b", shuffle=False)
    assert np.array_equal(read_all(tmp_path / "c")[0], expected(rows))


# -- what is refused -------------------------------------------------------------------------------------

ROWS = {"n": [1.0, 2.0], "y": [0, 1]}
MISSING = "" + MISSING_VALUE


@pytest.mark.fast_cases("columns0", "columns3", "columns6", "columns10", "columns13", "columns16")
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n": [1.0, None]}, f'{{a}}, row 1: column "n": {MISSING}'),
        ({"n": [1.0, float("inf")]}, '{a}, row 1: column "n": inf: a value must be finite'),
        ({"n": [1.0, -1e300]}, '{a}, row 1: column "n": -1e+300: the value does not fit into float32'),
        ({"n": ["a", None]}, f'{{a}}, row 1: column "n": {MISSING}'),
        ({"y": [0, None]}, '{a}, row 1: column "y": the row has no label; --drop unknown leaves such rows out'),
        ({"y": ["a", None]}, '{a}, row 1: column "y": the row has no label; --drop unknown leaves such rows out'),
        ({"n": [[1.0, 2], [3.0]]}, '{a}, row 1: column "n": 1 numbers where there should be 2'),
        ({"n": [[1.0, 2], None]}, '{a}, row 1: column "n": the list is missing'),
        ({"n": [[1.0, 2], [3.0, None]]}, f'{{a}}, row 1: column "n": {MISSING}'),
        ({"n": [[], [3.0]]}, '{a}, row 0: column "n": an empty list; the first row says how long lists are, unless'
         " --list-columns INDICES,VALUES names two columns that are sparse rows"),
        ({"indices": [[1], [2, 3]], "values": [[1.0], [2.0]]}, '{a}, row 1: column "indices": 2 indices for 1 values'),
        ({"indices": [[1], [-1]], "values": [[1.0], [2.0]]},
         '{a}, row 1: column "indices": -1: an index must be a whole number from 0 to 1'),
        ({"indices": [[1], [2**63 - 1]], "values": [[1.0], [2.0]]},
         f'{{a}}, row 1: column "indices": {2**63 - 1}: an index must be a whole number from 0 to {2**32 - 1}'),
        ({"indices": [[1.0], [float("inf")]], "values": [[1.0], [2.0]]},
         f'{{a}}, row 1: column "indices": inf: an index must be a whole number from 0 to {2**32 - 1}'),
        ({"indices": [[float("nan")], []], "values": [[1.0], []]},
         '{a}, row 0: column "indices": nan: an index must be a whole number from 0 to 0'),
        ({"n": [[["a"]], [["b"]]]},
         '{a}: column "n" is of type list<element: list<element: string>>, not number or text or list of numbers; '
         '--ignore-columns "n" leaves it out'),
        ({"y": [[1], [2]]}, '{a}: column "y" is of type list, not number or text; '
         "sets of labels are for documents: --multilabel of ingest and train"),
    ],
)  # fmt: skip
def test_refused_columns(tmp_path, columns, message):
    write(tmp_path / "a.parquet", {**ROWS, **columns})
    said = raised(BadInputError, ingest, tmp_path / "a.parquet", tmp_path / "d", label_column="y")
    assert said == message.format(a=tmp_path / "a.parquet")
    assert not (tmp_path / "d").exists()


def test_of_several_files_the_one_with_an_index_out_of_range_is_named(tmp_path):
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write(a, {"indices": [[0], [1]], "values": [[1.0], [2.0]], "y": [0, 1]})
    write(b, {"indices": [[0], [], [1, 2**32]], "values": [[1.0], [], [2.0, 3.0]], "y": [0, 1, 0]}, group=2)
    said = raised(BadInputError, ingest, [a, b], tmp_path / "d", label_column="y")
    rule = f"an index must be a whole number from 0 to {2**32 - 1}"
    assert said == f'{b}, row 2: column "indices": {2**32}: {rule}'


def test_refused_rows_are_skipped_and_counted(tmp_path):
    columns = {"n": [1.0, None, 3.0, 4.0], "w": ["a", "b", None, "b"], "y": [0, 1, 0, 1]}
    write(tmp_path / "a.parquet", columns)
    report = ingest(tmp_path / "a.parquet", tmp_path / "d", label_column="y", on_error="skip", shuffle=False)
    assert read_all(tmp_path / "d")[0].tolist() == [[1, 1, 0], [4, 0, 1]]
    assert report.skipped_lines == (
        f'{tmp_path}/a.parquet, row 1: column "n": {MISSING}',
        f'{tmp_path}/a.parquet, row 2: column "w": {MISSING}',
    )


def test_checksums_of_pages_are_verified(tmp_path):
    """Fault: A byte of a Parquet file with checksums of pages changed | a value of a source | one line, exit code 1;
    no output folder"""
    columns = {"n": pa.array(np.arange(100.0)), "y": pa.array(np.arange(100) % 2)}
    path = tmp_path / "a.parquet"
    plain = {"compression": "none", "use_dictionary": False, "column_encoding": {"n": "PLAIN", "y": "PLAIN"}}
    pq.write_table(pa.table(columns), path, write_page_checksum=True, **plain)
    content = path.read_bytes()
    value = content.index(np.float64(77.0).tobytes())
    path.write_bytes(content[: value + 3] + b"\x01" + content[value + 4 :])
    said = raised(BadInputError, ingest, path, tmp_path / "d", label_column="y")
    assert said.startswith(f"{path}: not a readable parquet file (")
    assert not (tmp_path / "d").exists()


def test_a_damaged_list_column_is_refused_before_it_is_surveyed(tmp_path):
    path = tmp_path / "a.parquet"
    columns = {"v": pa.array([[1.0, 2.0]] * 20), "y": pa.array(np.arange(20) % 2)}
    pq.write_table(pa.table(columns), path, compression="none", use_dictionary=False)
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 8 + content[12:])  # the header of the first page
    said = raised(BadInputError, ingest, path, tmp_path / "d", label_column="y")
    assert said.startswith(f"{path}: not a readable parquet file (")
    assert not (tmp_path / "d").exists()


def test_a_damaged_name_of_a_column_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"number": [1.0, 2.0], "y": [0, 1]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"number", b"num\xffer"))
    said = raised(BadInputError, ingest, path, tmp_path / "d", label_column="y")
    assert said.startswith(f"{path}: not a readable parquet file (")


def test_refused_files_and_options(tmp_path, monkeypatch):
    def refusal(kind, *sources, **options):
        given = {"label_column": "y", **options}
        return ingest_helpers.refusal(kind, list(sources), tmp_path / "d", **given)

    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write(a, ROWS)
    write(b, {"n": ["1", "2"], "y": [0, 1]})
    assert refusal(BadInputError, a, b) == f'{b}: its columns are not those of {a}: "n" is of kind text, not number'
    assert refusal(ParameterError, a, list_columns="n,v") == (
        f'list_columns: {a} has no column "n" of lists of numbers'
    )
    assert refusal(ParameterError, a, n_features=9) == (
        "n_features is for sparse rows; there are no two columns of lists, indices and values"
    )
    assert refusal(BadInputError, a, label_column=None) == (
        f'{a}: name the column of labels with --label-column (or ingest --unlabelled); there are "n", "y"'
    )
    ingest(a, tmp_path / "train", label_column="y")
    assert refusal(MismatchError, b, like=tmp_path / "train") == (
        f'{b}: column "n" is of kind text, but that of {tmp_path}/train of kind number'
    )
    monkeypatch.setattr(distls.ingestion.survey, "MOST_GUESSED", 1)
    assert refusal(BadInputError, b) == (
        'column "n" has more than 1 values: if it holds documents, read them with --text-column "n"; else take its '
        'values as categories with --categorical "n", or leave it out with --ignore-columns "n"'
    )
    b.write_bytes(a.read_bytes()[:-9])
    assert refusal(BadInputError, b).startswith(f"{b}: not a readable parquet file (")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "c.csv").write_text("n,y\n2024-01-05,0\n2024-02-06,1\n")
    for path in (a, tmp_path / "c.csv"):
        assert refusal(BadInputError, path) == (
            f"{path}: parquet files, and tables with dates, texts or gaps, are read with pyarrow; "
            "pip install 'distls[parquet]'"
        )


@pytest.mark.parametrize("column", ["n", "y"])
def test_text_that_is_not_utf8_is_refused(tmp_path, column):
    columns = {**ROWS, column: pa.array([b"a", b"\xff"]).cast(pa.string(), safe=False)}
    write(tmp_path / "a.parquet", columns)
    said = raised(BadInputError, ingest, tmp_path / "a.parquet", tmp_path / "d", label_column="y")
    assert said == f'{tmp_path}/a.parquet: column "{column}" is not UTF-8 text'


@pytest.mark.parametrize("asked", [{"categorical": ["kind"]}, {"label_column": "kind"}])
def test_codes_without_values_are_refused(tmp_path, monkeypatch, asked):
    """A damaged dictionary page: Arrow reads the column, and fails when it is decoded.

    Fault: Codes of a Parquet column without values | a dictionary page | one line, exit code 1; no output folder
    """
    path = tmp_path / "a.parquet"
    kind = pa.array(["a", "b", "a"]).dictionary_encode()
    pq.write_table(pa.table({"kind": kind, "n": [1.0, 2.0, 3.0], "y": [0, 1, 0]}), path)
    batches = parquet_files.parquet_batches

    def damaged(item, columns, n_rows):
        for batch in batches(item, columns, n_rows):
            at = batch.schema.names.index("kind")
            codes = pa.DictionaryArray.from_arrays(batch["kind"].indices, pa.array(["a"]), safe=False)
            yield batch.set_column(at, "kind", codes)

    monkeypatch.setattr(parquet_files, "parquet_batches", damaged)
    said = raised(BadInputError, ingest, path, tmp_path / "d", **{"label_column": "y", **asked})
    assert said == f"{path}: not a readable parquet file (Index 1 out of bounds)"
