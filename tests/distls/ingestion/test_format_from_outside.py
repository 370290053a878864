"""A format that this module defines and registers: JSON lines of numbers, the first of which is the label."""

import contextlib
import json
import math
from dataclasses import dataclass

import ingest_helpers
import numpy as np
import pytest
from helpers import printed, raised, refuses

import distls
from distls import CsvOptions, ingest, open_dataset
from distls.cli import cli
from distls.execution import ClusterOptions, open_executor
from distls.ingestion.formats import format_registry
from distls.ingestion.request.format import Format
from distls.ingestion.request.format_options import FormatOptions, OptionInfo, option
from distls.ingestion.request.like import description_of
from distls.ingestion.request.source_plan import SourcePlan, shared_options
from distls.ingestion.request.source_start import start_of
from distls.storage.errors import BadInputError, ParameterError
from distls.testing.formats import read_all
from distls.workers.ingestion.parsing.text_blocks import TextItem
from distls.workers.ingestion.records.reader import BlockReader
from distls.workers.ingestion.records.record_batch import ArrayHeader, ReadOptions, RowBlock

# -- the file of the workers -----------------------------------------------------------------------------

_BLOCK_ROWS = 64


@dataclass(frozen=True)
class NumbersReadOptions(ReadOptions):
    """How lines are read: all numbers of a row but its label have one unit."""

    unit: float = 1.0
    width: int = 0


def number_blocks(item, options, progress, block_bytes):
    """Yield the rows of a file; a row is a line."""
    with item.file.open() as file:
        lines = file.read().split(b"\n")[:-1]
    for first in range(progress.offset, len(lines), _BLOCK_ROWS):
        yield _block(first, lines[first : first + _BLOCK_ROWS], options)


def _block(first, lines, options):
    rows, faults = np.zeros((len(lines), 1 + options.width)), {}
    for number, line in enumerate(lines):
        values = json.loads(line)
        if len(values) == rows.shape[1]:
            rows[number] = values
        else:
            faults[number] = f"{len(values) - 1} numbers behind the label, there should be {options.width}"
    return RowBlock(first, rows[:, 1:] * options.unit, None, rows[:, :1], faults=faults)


NUMBERS_READER = BlockReader(number_blocks)


# -- the file of the driver ------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumbersOptions(FormatOptions):
    """Options of JSON lines of numbers."""

    unit: float | None = option(None, OptionInfo("numbers: multiply the features.", "FACTOR", parse=float))


class NumbersFormat(Format[NumbersOptions]):
    """JSON lines of numbers."""

    name = "numbers"
    options = NumbersOptions

    def recognises(self, start):
        return start.content.startswith(b"[")

    def plan(self, files, read, options, like):
        unit = description_of(like).get("unit", 1.0) if read.unit is None else read.unit
        width = len(json.loads(start_of(files[0]).split(b"\n")[0])) - 1
        return SourcePlan(
            self.name, NUMBERS_READER, tuple(files),
            tuple(TextItem(n, file, 0, file.size) for n, file in enumerate(files)),
            tuple(file.size for file in files), NumbersReadOptions(unit=unit, width=width, **shared_options(options)),
            (ArrayHeader(-1, width, sparse=False),), estimate=float(sum(file.size for file in files)),
            description={"unit": unit},
        )  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The format, for the tests of this module only."""
    known, parameters = dict(format_registry._FORMATS), list(cli.commands["ingest"].params)
    format_registry.register(NumbersFormat())
    yield
    cli.commands["ingest"].params = parameters
    format_registry._FORMATS.clear()
    format_registry._FORMATS.update(known)


def rows_of(seed, n_rows=300):
    random = np.random.default_rng(seed)
    x = random.integers(-50, 50, (n_rows, 4)) / 4
    y = (x @ [1.0, -2.0, 0.5, 1.0] > 0).astype(float)
    return np.column_stack([y, x])


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows.tolist()))
    return path


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    return [write(folder / f"{name}.txt", rows_of(seed)) for seed, name in enumerate("ab")]


def test_it_is_recognised_and_read_as_its_options_say(tmp_path, sources):
    ingest(sources, tmp_path / "d", shuffle=False, unit=0.5)
    rows = np.concatenate([rows_of(0), rows_of(1)])
    x, y = read_all(tmp_path / "d")[:2]
    assert np.array_equal(x, (rows[:, 1:] / 2).astype(np.float32))
    assert np.array_equal(y, rows[:, 0])
    meta = open_dataset(tmp_path / "d").meta
    assert meta.source == {"format": "numbers", "files": ["a.txt", "b.txt"], "recipe": {"unit": 0.5}}
    ingest(sources[1], tmp_path / "like", like=tmp_path / "d", shuffle=False)
    assert np.array_equal(read_all(tmp_path / "like")[0], x[300:])


@pytest.mark.slow
def test_workers_that_never_saw_it_registered_read_the_same_bits_and_a_model_trains(tmp_path, sources):
    ingest(sources, tmp_path / "one", read=NumbersOptions(unit=0.5))
    options = ClusterOptions(executor="dask", workers=2, threads_per_worker=1, memory_limit=600 * 2**20)
    executor, _ = open_executor(options)
    with contextlib.closing(executor):
        ingest(sources, tmp_path / "two", read=NumbersOptions(unit=0.5), executor=executor)
    one, two = open_dataset(tmp_path / "one"), open_dataset(tmp_path / "two")
    assert one.fingerprint == two.fingerprint
    run = distls.fit("sgd", tmp_path / "two", tmp_path / "run", passes=5)
    assert run.model is not None
    scored = distls.evaluate(tmp_path / "run", sources[0])
    assert scored.n_rows == 300
    assert scored.error < 0.1


def test_a_refusal_names_file_and_line(tmp_path, sources):
    path = tmp_path / "bad.txt"
    path.write_text("[1, 2, 3]\n[0, 1, 2]\n[1, 2]\n[0, 3, 4]\n")
    said = raised(BadInputError, ingest, path, tmp_path / "d")
    assert said == f"{path}:3: 1 numbers behind the label, there should be 2"
    report = ingest(path, tmp_path / "d", on_error="skip")
    assert (report.rows, report.skipped) == (3, 1)
    assert report.skipped_lines == (f"{path}:3: 1 numbers behind the label, there should be 2",)


def test_its_options_are_its_own(tmp_path, sources):
    def refusal(source, **options):
        return ingest_helpers.refusal(ParameterError, source, tmp_path / "d", **options)

    table = tmp_path / "a.csv"
    table.write_text("x,y\n1,2\n3,4\n")
    assert refusal(table, unit=2) == "unit is for sources of format numbers, these are csv"
    assert refusal(sources[0], hash_bits=3) == "hash_bits is for sources of format vw, these are numbers"
    assert refusal(sources[0], read=NumbersOptions(), unit=2.0, na=1) == (
        "unit, na and read exclude each other; give what NumbersOptions has there"
    )
    assert refusal(table, read=NumbersOptions(), format="csv") == (
        "read must be CsvOptions for sources of format csv, not NumbersOptions"
    )
    assert refusal(np.ones((2, 2)), read=CsvOptions()) == "read is for files; arrays in memory were given"
    refuses(TypeError, "unexpected keyword argument 'units'", ingest, sources[0], tmp_path / "d", units=2)
    refuses(TypeError, "argument 'label'; it is label_column", ingest, table, tmp_path / "d", label="y")
    assert refusal(table, target="y") == (
        "target must be one of auto, class, continuous, not 'y'; --label-column names the column of labels"
    )
    refuses(ValueError, "there is a format numbers already", format_registry.register, NumbersFormat())


def test_the_command_line_has_it_too(tmp_path, sources):
    assert "--unit FACTOR" in printed("ingest", "--help")
    arguments = [sources[0], tmp_path / "d", "--format", "numbers", "--unit", "0.5"]
    printed("ingest", *arguments, "--executor", "serial", "--no-shuffle", "--quiet")
    assert math.isclose(float(read_all(tmp_path / "d")[0][0, 0]), rows_of(0)[0, 1] / 2)
