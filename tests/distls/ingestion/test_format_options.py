"""The options of a format: as an object of their own or by name, checked where they are made."""

import dataclasses
import json

import numpy as np
import pytest
from helpers import raised
from ingest_helpers import make_text, small_ranges  # noqa: F401

import distls
from distls import ingest, open_dataset
from distls.ingestion.formats.format_registry import format_names, option_defaults, option_infos
from distls.ingestion.request.format_options import FormatOptions, column_list
from distls.storage.errors import IncompleteError, ParameterError
from distls.storage.filesystem.checksums import write_sealed
from distls.testing.formats import Dying, Killed

TABLE = "id;x;kind;y\n1;2;a;0\n2;;b;1\n3;4;a;1\n4;7;c;0\n"
SOURCES = {
    "a.svm": (make_text(60, base=0), distls.SvmlightOptions, {"zero_based": True}),
    "a.vw": ("1 |a x:2 y\n0 |a z\n1 |b x:3\n", distls.VwOptions, {"hash_bits": 5}),
    "a.jsonl": (
        '{"t": "one two", "l": "a"}\n{"t": "two three", "l": "b"}\n',
        distls.DocumentOptions,
        {"text_column": "t", "label_column": "l", "ngrams": (1, 2), "binary": True},
    ),
    "a.csv": (
        TABLE,
        distls.CsvOptions,
        {"label_column": "last", "ignore_columns": "id", "separator": ";", "header": True, "na": -1},
    ),
}


@pytest.mark.fast_cases(r"a\.svm")
@pytest.mark.parametrize("name", SOURCES)
def test_an_object_and_names_give_the_same_data(tmp_path, name):
    text, kind, options = SOURCES[name]
    (tmp_path / name).write_text(text)
    ingest(tmp_path / name, tmp_path / "named", **options)
    ingest(tmp_path / name, tmp_path / "object", read=kind(**options))
    named, own = (open_dataset(tmp_path / data) for data in ("named", "object"))
    assert named.fingerprint == own.fingerprint
    assert named.meta.source == own.meta.source


def test_the_object_names_the_format(tmp_path):
    (tmp_path / "a.txt").write_text("1,2\n0,3\n")
    ingest(tmp_path / "a.txt", tmp_path / "d", read=distls.CsvOptions(label_column=0))
    assert open_dataset(tmp_path / "d").meta.source["format"] == "csv"
    np.savez(tmp_path / "a.npz", X=np.eye(3))
    np.save(tmp_path / "y.npy", np.array([0, 1, 1]))
    # npz, npy and idx have the same options: the file says which it is
    ingest(tmp_path / "a.npz", tmp_path / "e", read=distls.ArrayOptions(labels=tmp_path / "y.npy"))
    assert open_dataset(tmp_path / "e").meta.source["format"] == "npz"


@pytest.mark.fast_cases("VwOptions", "SvmlightOptions")
@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (distls.VwOptions, {"hash_bits": 32}, "hash_bits must be from 1 to 31, not 32"),
        (distls.CsvOptions, {"header": "maybe"}, "header must be one of yes, no, not 'maybe'"),
        (distls.CsvOptions, {"na": "x"}, "na must be the number that missing values stand for, not 'x'"),
        (distls.ParquetOptions, {"list_columns": "a"}, "list_columns are two names, of indices and of values, not 'a'"),
        (
            distls.DocumentOptions,
            {"ngrams": "2,1"},
            "ngrams are the shortest and the longest, as in 1,2; '2,1' was given",
        ),
        (distls.SvmlightOptions, {"zero_based": "no!"}, "zero_based must be one of auto, yes, no, not 'no!'"),
    ],
)  # fmt: skip
def test_values_are_checked_when_the_object_is_made_and_before_a_source_is_opened(tmp_path, kind, options, message):
    assert raised(ParameterError, kind, **options) == message
    assert raised(ParameterError, ingest, tmp_path / "none", tmp_path / "d", **options) == message


def test_options_say_what_they_are_and_are_exported():
    kinds = [value for value in map(distls.__getattr__, distls._homes()) if isinstance(value, type)]
    exported = {kind for kind in kinds if issubclass(kind, FormatOptions)}
    assert len(exported) == 7
    assert {name for kind in exported for name in kind.infos()} == set(option_infos())
    assert all(info.help for info in option_infos().values())
    for kind in exported:
        assert kind().given() == {}
        documented = f"{kind.__doc__}{FormatOptions.__doc__}"
        assert all(name in documented for name in kind.infos()), kind
        assert {field.name for field in dataclasses.fields(kind)} == set(kind.defaults())


@pytest.mark.usefixtures("small_ranges")
def test_a_half_done_ingest_goes_on_whichever_way_its_options_are_given(tmp_path):
    (tmp_path / "a.svm").write_text(make_text(base=0))
    with pytest.raises(Killed):
        ingest(tmp_path / "a.svm", tmp_path / "d", zero_based="yes", executor=Dying(3))
    with pytest.raises(IncompleteError, match="its zero_based was 'yes', not 'auto'; give the same"):
        ingest(tmp_path / "a.svm", tmp_path / "d")
    ingest(tmp_path / "a.svm", tmp_path / "d", read=distls.SvmlightOptions(zero_based=True))
    ingest(tmp_path / "a.svm", tmp_path / "whole", zero_based="yes")
    assert open_dataset(tmp_path / "d").fingerprint == open_dataset(tmp_path / "whole").fingerprint


@pytest.mark.usefixtures("small_ranges")
def test_the_stored_plan_has_the_options_of_all_formats(tmp_path):
    (tmp_path / "a.svm").write_text(make_text())
    with pytest.raises(Killed):
        ingest(tmp_path / "a.svm", tmp_path / "d", executor=Dying(3))
    (path,) = (tmp_path / "d").rglob("plan.json")
    stored = json.loads(path.read_text())["document"]["options"]
    shared = {
        *("format", "n_features", "multilabel", "unlabelled", "target", "transform", "like", "split"),
        *("partition_size", "compress", "dtype", "shuffle", "seed", "on_error", "row_numbers"),
        "unknown_features",
    }
    assert set(stored) == shared | set(option_defaults())
    assert stored["format"] == "svmlight"
    assert len(format_names()) == 11
    # one that another version of distls wrote is not gone on with
    document = {**json.loads(path.read_text())["document"], "version": 1}
    write_sealed(path, {"document": document})
    with pytest.raises(IncompleteError, match="it was made by another version of distls; give the same"):
        ingest(tmp_path / "a.svm", tmp_path / "d")


@pytest.mark.parametrize("name", ["a\rb", "a\nb", "x" * 200_000])
def test_a_name_that_is_no_line_of_csv_is_one_name(name):
    assert column_list(name) == (name,)
