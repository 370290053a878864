"""Five hundred rounds: nothing is left of one when the next begins, and nothing grows with them."""

import json
import subprocess
import sys

import pytest

ROUNDS = 500
# With a new group of tasks a call, the scheduler grew by 6.4 KiB a round; without, it is 0.9 to 1.2, of which names of
# tasks are remembered up to 100,000. The others hold data too, and give memory back when they like.
GROWTH_KIB = {"scheduler": 4.0, "driver": 40.0, "worker 0": 40.0, "worker 1": 40.0}

# Files that are just being read, connections that are opened when they are first needed; one left a round would be 250.
PASSING = 10


@pytest.mark.slow
def test_500_rounds_leave_nothing(tmp_path):
    out = tmp_path / "out.json"
    options = ["--methods", "mcid", "--clusters", "own", "--rounds", str(ROUNDS), "--out", str(out)]
    subprocess.run([sys.executable, "-m", "benchmarks.faults.endurance", *options], check=True)
    (found,) = json.loads(out.read_text())
    assert found["rounds"] == ROUNDS
    # the one that keeps the group of tasks
    assert found["tasks"] == 1
    assert found["left"] == []
    assert found["run"] == ["config.json", "events.jsonl", "final", "model", "status.json"]
    assert found["files"][1] == found["files"][0]
    for process, most in GROWTH_KIB.items():
        first, second = found[process]["open"]
        assert second <= first + PASSING, process
        assert found[process]["KiB a round"] < most, process
