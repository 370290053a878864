"""What every source format promises: the rows of its files, with the same bits whatever reads them and after a kill."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from distls.execution.executor import Item, Result
from distls.execution.serial import SerialExecutor
from distls.ingestion.ingest import ingest
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import DistlsError
from distls.storage.rows import CsrRows, dense_of
from distls.testing.solvers import opened


class Source(NamedTuple):
    """Files of a format and what is in them."""

    files: list[Path]
    x: NDArray[Any]  # the features of all rows, in the order of the files
    y: NDArray[Any]  # their labels, as the codes of the classes in sorted order or as numbers


class Killed(Exception):
    """What `Dying` ends with."""


class Dying(SerialExecutor):
    """Runs so many tasks and dies."""

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks

    def map(
        self, function: Callable[[Any, Item], Result], items: Sequence[Item], *, shared: Any = None
    ) -> Iterator[Result]:
        """See `Executor.map`."""
        for item in items:
            if self.tasks == 0:
                raise Killed
            self.tasks -= 1
            yield function(shared, item)


class Reversed(SerialExecutor):
    """Another schedule: items run last first; results come in order all the same."""

    def map(
        self, function: Callable[[Any, Item], Result], items: Sequence[Item], *, shared: Any = None
    ) -> Iterator[Result]:
        """See `Executor.map`."""
        results = [function(shared, item) for item in reversed(items)]
        return iter(results[::-1])


def read_all(path: Path | Dataset) -> tuple[NDArray[Any], Any]:
    """Return the dense features and the targets of a dataset, partitions in order."""
    data = path if isinstance(path, Dataset) else open_dataset(path)
    parts = [data.read(index) for index in range(len(data))]
    x = [dense_of(part.x, data.meta.n_features) for part in parts]
    targets = [part.y.indices if isinstance(part.y, CsrRows) else part.y for part in parts]
    return np.concatenate(x), None if targets[0] is None else np.concatenate(targets)


class FormatContract:
    """What every format must do; subclasses set `format` and provide the fixture `source`.

    The format is registered where the tests run; workers need not know it.
    """

    format: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    def ingest(self, source: Source, dataset: Path, **options: Any) -> Any:
        """Ingest the files with the contract's options, in partitions of a few rows."""
        return ingest(source.files, dataset, **{"partition_size": 4000, **self.options, **options})

    @pytest.fixture
    def whole(self, source: Source, tmp_path: Path) -> Dataset:
        """Ingest all files, undisturbed."""
        self.ingest(source, tmp_path / "whole")
        return open_dataset(tmp_path / "whole")

    def test_it_is_recognised_and_read(self, source: Source, tmp_path: Path) -> None:
        report = self.ingest(source, tmp_path / "d", shuffle=False)
        x, y = read_all(tmp_path / "d")
        np.testing.assert_allclose(x, source.x.astype(x.dtype), rtol=1e-6)
        np.testing.assert_array_equal(y, source.y)
        assert open_dataset(tmp_path / "d").meta.source["format"] == self.format
        assert report.rows == len(source.x)

    def test_same_bits_whatever_reads_it(self, source: Source, whole: Dataset, tmp_path: Path) -> None:
        for executor in (Reversed(), opened("two processes")):
            name = tmp_path / type(executor).__name__
            self.ingest(source, name, executor=executor)
            assert open_dataset(name).fingerprint == whole.fingerprint

    @pytest.mark.parametrize("share", [0.3, 0.9])
    def test_killed_it_resumes_to_the_same_bits(
        self, source: Source, whole: Dataset, tmp_path: Path, share: float
    ) -> None:
        counter = Dying(10**6)
        self.ingest(source, tmp_path / "counted", executor=counter)
        with pytest.raises(Killed):
            self.ingest(source, tmp_path / "d", executor=Dying(int(share * (10**6 - counter.tasks))))
        self.ingest(source, tmp_path / "d")
        assert open_dataset(tmp_path / "d").fingerprint == whole.fingerprint

    def test_more_files_are_read_alike(self, source: Source, whole: Dataset, tmp_path: Path) -> None:
        ingest(source.files[0], tmp_path / "alike", like=whole.path, shuffle=False)
        x, y = read_all(tmp_path / "alike")
        np.testing.assert_allclose(x, source.x[: len(x)].astype(x.dtype), rtol=1e-6)
        np.testing.assert_array_equal(y, source.y[: len(y)])

    def test_what_is_no_file_of_it_is_refused(self, source: Source, tmp_path: Path) -> None:
        noise = tmp_path / f"noise{source.files[0].suffix}"
        noise.write_bytes(np.random.default_rng(0).bytes(2000))
        with pytest.raises(DistlsError, match="noise"):
            ingest(noise, tmp_path / "d", format=self.format, **self.options)
        assert not (tmp_path / "d").exists()
