"""What lanes cost: objective and test error of averaging methods after the same passes, and passes of dual ascent.

    python -m benchmarks.speed.lanes [--directory FOLDER] [--rows N] [--lanes 8,32,128,512] [--methods mcid,sgd]
                                     [--rounds 2,8,32] [--out FILE]

On generated `rcv1-4` data in small partitions, in this process: the results are those of any cluster, and nothing here
is measured in seconds. Averaging methods: after 1, 3 and 8 passes, with what they have by default. `sdca`: passes to
proven relative gaps of 1e-3 and 1e-5 of the log loss, judged after every half pass, by lanes and `rounds` a pass.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import distls
from distls.execution.memory_budget import MIB
from distls.synthetic.generation import generate
from distls.training.callbacks import History

PASSES = (1, 3, 8)
GAPS = (1e-3, 1e-5)
ALPHA = 1e-5


def averaged(data: Path, method: str, lanes: int) -> Iterator[dict[str, Any]]:
    """Yield objective and test error of a method that averages lanes."""
    test = data.with_name(f"{data.name}-test")
    for passes in PASSES:
        params = {"alpha": ALPHA, "loss": "softmax", "lanes": lanes}
        record = distls.fit(method, data, params=params, passes=passes, eval_data=test, executor="serial").record
        yield {
            "method": method,
            "lanes": lanes,
            "passes": passes,
            "objective": record["objective"],
            "test error": record["eval_error"],
        }


def ascended(data: Path, lanes: int, rounds: int) -> dict[str, Any]:
    """Return the passes of dual ascent to each gap, None where 40 do not do."""
    history, params = History(), {"alpha": ALPHA, "loss": "softmax", "lanes": lanes, "rounds": rounds}
    distls.fit(
        "sdca", data, params=params, passes=40, rtol=GAPS[-1], eval_every=0.45, executor="serial",
        callbacks=[history],
    )  # fmt: skip
    gaps = [(r["passes"], r["certificate"]["relative"]) for r in history.records if "objective" in r]
    found = {f"{gap:g}": next((at for at, value in gaps if value <= gap), None) for gap in GAPS}
    return {"method": "sdca", "lanes": lanes, "rounds": rounds, **found}


def prepared(folder: Path, rows: int, lanes: int) -> Path:
    """Return the data, in as many partitions as there are lanes at most, or a few more."""
    data, whole = folder / f"rcv1-4-{rows}-{lanes}", folder / f"whole-{rows}"
    if not data.exists():
        generate("rcv1-4", whole, rows=min(rows, 2000))
        stored = distls.open_dataset(str(whole)).decoded_bytes.sum() / min(rows, 2000)
        generate("rcv1-4", data, rows=rows, partition_size=int(min(stored * rows / lanes / 1.1, 16 * MIB)))
    return data


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Print the rows, write them as JSON where asked, and return them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()) / "distls-lanes")
    parser.add_argument("--rows", type=int, default=262_144)
    parser.add_argument("--lanes", type=_numbers, default=[8, 32, 128, 512])
    parser.add_argument("--methods", default="mcid,sgd")
    parser.add_argument("--rounds", type=_numbers, default=[2, 8, 32])
    parser.add_argument("--out", type=Path, help="write the results here as JSON")
    options, rows = parser.parse_args(argv), list[dict[str, Any]]()
    options.directory.mkdir(parents=True, exist_ok=True)
    data = prepared(options.directory, options.rows, max(options.lanes))
    for row in _rows(data, options):
        rows.append(row)
        print(", ".join(f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {value}"
                        for key, value in row.items()), flush=True)  # fmt: skip
        if options.out:
            options.out.write_text(json.dumps(rows, indent=1) + "\n")
    return rows


def _rows(data: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for lanes in options.lanes:
        for method in filter(None, options.methods.split(",")):
            yield from averaged(data, method, lanes)
    for lanes in options.lanes:
        for rounds in options.rounds:
            yield ascended(data, lanes, rounds)


if __name__ == "__main__":
    main()
