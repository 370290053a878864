"""Speed of reading separated text on one core, in MB per second, compared with `pyarrow.csv` on the same blocks.

    python benchmarks/speed/table_parsing.py [--tiny] [--repeats N] [--out FILE.json]

Every column of the output is a way through the same block of whole lines:

    survey     our survey: which columns are numbers, which values the others have
    records    our parser: text to records, values rounded to float32 from the nearest double
    stage      the whole first stage of an ingest: read the file, parse, assign rows to buckets, compress, write
    read_csv   `pyarrow.csv` alone, to columns of float64 and of strings
    arrow      the same, then as for Parquet: columns to rows, values checked and packed into records

Times are CPU times of the process (Arrow sometimes parses in a separate thread), medians over the repeats, all ways
in turns: read ratios within a run. If the records of both ways differ, the benchmark stops.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool
from distls.storage.temporary.ingest_staging import StagingArea
from distls.workers.ingestion.formats.csv import CSV_READER, DelimitedParser
from distls.workers.ingestion.formats.parquet import record_batch_rows
from distls.workers.ingestion.formats.parquet_files import ParquetItem
from distls.workers.ingestion.formats.table_columns import MISSING, Feature, TableOptions
from distls.workers.ingestion.parsing.text_blocks import SourceFile, TextItem, text_blocks
from distls.workers.ingestion.records.pack_records import pack_blocks
from distls.workers.ingestion.records.record_batch import Progress, ReadRun, RecordLayout
from distls.workers.ingestion.stage_task import StageSpec, stage_item
from distls.workers.ingestion.survey_task import SurveySpec, survey_item

JOBS = tuple(sorted(f"profession {k:02}" for k in range(20)))
WAYS = ("survey", "records", "stage", "read_csv", "arrow")


@dataclass(frozen=True)
class Shape:
    """A kind of table: its columns, and how a field is written.

    Attributes
    ----------
    name : str
    numbers, words : int
        Columns.
    digits : int
        Significant digits of a number; 0: small whole numbers.
    quoted : bool
        Every field stands between quotes.
    """

    name: str
    numbers: int
    words: int = 0
    digits: int = 6
    quoted: bool = False

    def options(self) -> TableOptions:
        """Return how the table is read; its last column is the label."""
        features = [Feature(f"n{k}") for k in range(self.numbers)]
        features += [Feature(f"w{k}", JOBS) for k in range(self.words)]
        columns = (*(feature.name for feature in features), "y")
        return TableOptions(columns=columns, label="y", features=tuple(features))

    def lines(self, n_bytes: int) -> bytes:
        """Return about `n_bytes` of rows."""
        rng = np.random.default_rng(self.numbers)
        quote = '"' if self.quoted else ""
        end = f"{quote},{quote}"
        lines, size = [], 0
        while size < n_bytes:
            fields = [*self._numbers(rng), *(JOBS[k] for k in rng.integers(0, len(JOBS), self.words))]
            lines.append(f"{quote}{end.join(fields)}{end}{rng.integers(0, 4)}{quote}\n")
            size += len(lines[-1])
        return "".join(lines).encode()

    def _numbers(self, rng: np.random.Generator) -> list[str]:
        if self.digits == 0:
            return list(map(str, rng.integers(0, 1000, self.numbers).tolist()))
        return [f"{value:.{self.digits}g}" for value in rng.standard_normal(self.numbers).tolist()]


SHAPES = (
    Shape("30 numbers of 6 digits", 30),
    Shape("30 numbers of 17 digits", 30, digits=17),
    Shape("30 whole numbers", 30, digits=0),
    Shape("10 numbers, 5 categories", 10, words=5),
    Shape("1,000 numbers of 6 digits", 1000),
    Shape("10 numbers, 5 categories, quoted", 10, words=5, quoted=True),
)


class Ways:
    """The ways through one file."""

    def __init__(self, shape: Shape, folder: Path, n_bytes: int) -> None:
        text = shape.lines(n_bytes)
        path = folder / "table.csv"
        path.write_bytes(text)
        stat = path.stat()
        self.n_bytes = len(text)
        self.folder = folder
        self.options = shape.options()
        self.file = SourceFile(str(path), stat.st_size, stat.st_mtime_ns)
        self.item = TextItem(0, self.file, 0, len(text))
        self.layout = RecordLayout(dense=self.options.dense)
        self.pool = BufferPool()
        (self.block,) = text_blocks(self.item, 0, len(text), 0, BufferPool())

    def survey(self) -> None:
        """Look at the columns."""
        columns = self.options.columns
        limits = {c: 1000 for c, name in enumerate(columns) if name.startswith("w")}
        checked = tuple(c for c in range(len(columns)) if c not in limits)
        spec = SurveySpec(self._staging(), "survey", self.options, limits, checked, 2**25)
        survey_item(spec, self.item)

    def _staging(self) -> StagingArea:
        staging = StagingArea(Path(tempfile.mkdtemp(dir=self.folder)))
        staging.create()
        return staging

    def records(self) -> list[NDArray[np.uint32]]:
        """Parse with the kernel."""
        parser = DelimitedParser(self._run(Progress(), 0))
        return [batch.words for batch in parser.parse(self.block)]

    def stage(self) -> None:
        """Run the first stage of an ingest."""
        spec = StageSpec(self._staging(), CSV_READER, self.layout, self.options, n_buckets=4)
        stage_item(spec, self.item)

    def read_csv(self) -> list[pa.RecordBatch]:
        """Parse with Arrow, to columns."""
        columns = self.options.columns
        words = {feature.name for feature in self.options.features if feature.categories is not None}
        types = {name: pa.string() if name in words else pa.float64() for name in columns}
        # pieces that fit into a cache are read twice as fast as the whole block, unless they have few rows
        piece = max(2**20, 2**14 * len(columns))
        table = pacsv.read_csv(
            pa.py_buffer(self.block.text[: self.block.size]),
            pacsv.ReadOptions(use_threads=False, block_size=piece, column_names=columns),
            pacsv.ParseOptions(delimiter=self.options.dialect.separator),
            pacsv.ConvertOptions(column_types=types, null_values=MISSING, strings_can_be_null=True),
        )
        return list(table.to_batches())

    def arrow(self) -> list[NDArray[np.uint32]]:
        """Parse with Arrow, to records."""
        progress = Progress()
        item = ParquetItem(0, self.file, 0, 0, 0, self.n_bytes)
        n_features = sum(feature.size for feature in self.options.features)
        blocks = (record_batch_rows(batch, self.options, item.file.path, progress, 0) for batch in self.read_csv())
        return [batch.words for batch in pack_blocks(blocks, self._run(progress, n_features))]

    def _run(self, progress: Progress, n_features: int) -> ReadRun[TableOptions]:
        return ReadRun(self.options, progress, self.layout.n_extra, n_features, 2**25, self.pool)


def measure(ways: Ways, repeats: int) -> dict[str, float]:
    """Return MB a second of each way; the first, uncounted call compiles."""
    runs: dict[str, Callable[[], object]] = {name: getattr(ways, name) for name in WAYS}
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if repeat:
                seconds[name].append(time.process_time() - start)
    return {name: ways.n_bytes / 1e6 / float(np.median(taken)) for name, taken in seconds.items()}


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Print the table, write it as JSON where asked, and return it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="little text: for tests that the script still works")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the results here as JSON")
    options = parser.parse_args(argv)
    report: dict[str, Any] = {"pyarrow": pa.__version__, "results": []}
    print(f"{'MB/s':34}" + "".join(f"{name:>10}" for name in WAYS))
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            ways = Ways(shape, Path(folder), 20_000 if options.tiny else 2**24)
            ours, theirs = np.concatenate(ways.records()), np.concatenate(ways.arrow())
            assert np.array_equal(ours, theirs), f"{shape.name}: the records differ"
            rates = measure(ways, options.repeats)
        report["results"].append({"table": shape.name, **rates})
        print(f"{shape.name:34}" + "".join(f"{rates[name]:10.0f}" for name in WAYS))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return report


if __name__ == "__main__":
    main()
