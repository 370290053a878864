"""Good files for `benchmarks.faults.fuzz`, and how each kind is read to its end."""

from __future__ import annotations

import contextlib
import gzip
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import scipy.sparse as sp
from click.testing import CliRunner

import distls
from distls.cli import cli
from distls.solvers.events import RoundEvent
from distls.storage.dataset.chunks import read_arrays
from distls.storage.dataset.metadata import digest_of
from distls.storage.errors import DistlsError
from distls.storage.filesystem.atomic import canonical_json

__all__ = ["READERS", "Reader", "make_seeds"]

ROWS, FEATURES, CLASSES = 60, 12, 3


@dataclass(frozen=True)
class Reader:
    """A kind of files: how to make some, how to read one, how to make its checksums right again."""

    make: Callable[[Path], None]
    read: Callable[[Path, Path], None]
    right: Callable[[Path], None] | None = None


def _rows() -> tuple[sp.csr_matrix, np.ndarray[Any, np.dtype[np.int64]]]:
    rng = np.random.default_rng(0)
    x = sp.random(ROWS, FEATURES, 0.4, format="csr", random_state=0, dtype=np.float32)
    return x, rng.integers(0, CLASSES, ROWS)


def _ingest(path: Path, place: Path, **options: Any) -> None:
    """Ingest a source and read all that was made of it."""
    distls.ingest(path, place / "out", executor="serial", **options)
    data = distls.open_dataset(place / "out")
    for index in range(len(data)):
        data.read(index)


# -- sources ---------------------------------------------------------------------------------------------


def _svmlight(folder: Path) -> None:
    x, y = _rows()
    lines = [
        f"{label} " + " ".join(f"{j + 1}:{v:.5g}" for j, v in zip(row.indices, row.data, strict=True))
        for label, row in zip(y, x, strict=True)
    ]
    text = ("\n".join(lines) + "\n# a comment\n").encode()
    (folder / "rows.svm").write_bytes(text)
    (folder / "rows.svm.gz").write_bytes(gzip.compress(text))


def _vw(folder: Path) -> None:
    x, y = _rows()
    lines = []
    for i, (label, row) in enumerate(zip(y, x, strict=True)):
        numbers = " ".join(f"f{j}:{v:.4g}" for j, v in zip(row.indices, row.data, strict=True))
        lines.append(f"{label + 1} 2.0 'tag{i}|a {numbers} |b w")
    (folder / "rows.vw").write_text("\n".join(lines) + "\n")


def _csv(folder: Path) -> None:
    x, y = _rows()
    head = ["label", *(f"c{j}" for j in range(FEATURES)), "kind"]
    lines = [[y[i], *x[i].toarray()[0].tolist(), '"a ""b"""' if i % 2 else "z"] for i in range(ROWS)]
    (folder / "rows.csv").write_text("\n".join(",".join(map(str, line)) for line in [head, *lines]) + "\n")


def _parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    x, y = _rows()
    columns: dict[str, Any] = {f"c{j}": x[:, [j]].toarray()[:, 0] for j in range(FEATURES)}
    kinds = pa.array([f"k{i % 4}" for i in range(ROWS)]).dictionary_encode()
    pq.write_table(pa.table({"label": y, **columns, "kind": kinds}), folder / "plain.parquet", row_group_size=20)
    indices = pa.array([row.indices.tolist() for row in x], pa.list_(pa.int64()))
    values = pa.array([row.data.tolist() for row in x], pa.list_(pa.float32()))
    pq.write_table(
        pa.table({"label": y, "indices": indices, "values": values}), folder / "lists.parquet",
        compression="none", write_page_checksum=True,
    )  # fmt: skip


def _anndata(folder: Path) -> None:
    import anndata
    import pandas as pd

    x, y = _rows()
    obs = pd.DataFrame({"label": [f"c{c}" for c in y]}, index=[str(i) for i in range(ROWS)])
    table = anndata.AnnData(x, obs=obs)
    table.write_h5ad(folder / "rows.h5ad")
    table.write_zarr(folder / "rows.zarr")


def _npy(folder: Path) -> None:
    np.save(folder / "rows.npy", _rows()[0].toarray())


def _npz(folder: Path) -> None:
    x, y = _rows()
    np.savez(folder / "dense.npz", x=x.toarray(), y=y)
    sp.save_npz(folder / "sparse.npz", x)


def _idx(folder: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (ROWS, 4, 4)).astype(np.uint8)
    content = struct.pack(">HBBIII", 0, 8, 3, *images.shape) + images.tobytes()
    (folder / "rows-images-idx3-ubyte").write_bytes(content)
    (folder / "packed-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))


def _documents(folder: Path) -> None:
    _, y = _rows()
    texts = [f"word{i} another wörd {i % 7} end" for i in range(ROWS)]
    (folder / "rows.txt").write_text("".join(f"c{c}\t{t}\n" for c, t in zip(y, texts, strict=True)))
    records = [{"label": f"c{c}", "text": t} for c, t in zip(y, texts, strict=True)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def _read_npz(path: Path, place: Path) -> None:
    _ingest(path, place, unlabelled=path.name == "sparse.npz")


# -- what distls wrote -----------------------------------------------------------------------------------


def _dataset(folder: Path) -> None:
    x, y = _rows()
    distls.ingest(x, folder / "sparse", y=y, partition_size=2000, executor="serial", columns=True)
    distls.ingest(x.toarray(), folder / "dense", y=y, partition_size=2000, executor="serial", transform="standardize")


def _read_dataset(path: Path, place: Path) -> None:
    _told("info", path)
    data = distls.open_dataset(path)
    data.features(), data.feature_names(), data.columns
    for index in range(len(data)):
        data.read(index)
    distls.fit("gls", path, place / "run", params={"alpha": 0.1}, passes=2, executor="serial")


def _fingerprint(path: Path) -> None:
    """Write the fingerprint that the metadata should have."""
    try:
        document = json.loads((path / "zarr.json").read_text())
        stored = document["attributes"]["distls"]
        stored.pop("fingerprint", None)
        stored["fingerprint"] = digest_of(stored, dict(sorted(read_arrays(path / "partitions", path).items())))
    except (DistlsError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    (path / "zarr.json").write_text(json.dumps(document))


class _Stop:
    """Interrupts a fit after its third round."""

    def on_start(self, start: object) -> None:
        """Ignore the start."""

    def on_round(self, event: RoundEvent) -> None:
        """Raise what Ctrl-C raises."""
        if event.record["round"] == 3:
            raise KeyboardInterrupt

    def on_end(self, status: object, state: object) -> None:
        """Ignore the end."""


def _run(folder: Path) -> None:
    made = folder.with_name(f"{folder.name}-made")
    _dataset(made)
    for method in ("sgd", "gls"):
        run = folder / method
        with contextlib.suppress(KeyboardInterrupt):
            distls.fit(
                method, made / "sparse", run, params={"alpha": 0.1, "lanes": 1}, passes=9, executor="serial",
                checkpoint_seconds=0, callbacks=[_Stop()],
            )  # fmt: skip


def _read_run(path: Path, place: Path) -> None:
    _told("info", path)
    _told("report", path)
    distls.resume(path, executor="serial")


def _model(folder: Path) -> None:
    runs = folder.with_name(f"{folder.name}-runs")
    _run(runs)
    for method in ("sgd", "gls"):
        distls.resume(runs / method, executor="serial")
        (runs / method / "model").rename(folder / method)


def _read_model(path: Path, place: Path) -> None:
    _told("info", path)
    model = distls.load_model(path)
    model.predict(_rows()[0])


def _checksums(path: Path) -> None:
    """Write the checksums that the bundles of a folder should have."""
    for file in path.rglob("bundle.json"):
        try:
            content = json.loads(file.read_text())
            for name, described in content["arrays"].items():
                described["crc32c"] = google_crc32c.value((file.parent / f"{name}.npy").read_bytes())
            content.pop("crc32c", None)
            content["crc32c"] = google_crc32c.value(canonical_json(content).encode())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        file.write_text(json.dumps(content))


def _told(*arguments: object) -> None:
    """Run a command that describes; raise what it let through."""
    ran = CliRunner().invoke(cli, [str(each) for each in arguments])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    if ran.exit_code not in (0, 1) or (ran.exit_code == 1 and len(ran.stderr.splitlines()) != 1):
        raise RuntimeError(f"exit code {ran.exit_code}: {ran.stderr}")


READERS: dict[str, Reader] = {
    "svmlight": Reader(_svmlight, _ingest),
    "vw": Reader(_vw, _ingest),
    "csv": Reader(_csv, partial(_ingest, label_column="label", categorical=["kind"])),
    "parquet": Reader(_parquet, partial(_ingest, label_column="label")),
    "anndata": Reader(_anndata, partial(_ingest, label_column="label")),
    "npy": Reader(_npy, partial(_ingest, unlabelled=True)),
    "npz": Reader(_npz, _read_npz),
    "idx": Reader(_idx, partial(_ingest, unlabelled=True)),
    "text": Reader(_documents, _ingest),
    "dataset": Reader(_dataset, _read_dataset, _fingerprint),
    "model": Reader(_model, _read_model, _checksums),
    "run": Reader(_run, _read_run, _checksums),
}


def make_seeds(folder: Path, readers: Sequence[str]) -> None:
    """Write the good files of each reader into a folder of its name, and read each once."""
    for name in readers:
        made = folder / name
        made.mkdir(parents=True)
        READERS[name].make(made)
