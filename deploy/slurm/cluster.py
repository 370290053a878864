"""Fit or resume from a login node, on workers that are SLURM jobs of their own: python cluster.py DATASET RUN."""

import signal
import sys
from pathlib import Path

from dask_jobqueue import SLURMCluster
from distributed import Client

import distls
from distls.training.fitting import FitResult

OPTIONS = {
    "cores": 8,  # a job: eight workers of one thread
    "processes": 8,
    "memory": "32GiB",
    "walltime": "04:00:00",
    "job_extra_directives": ["--requeue"],
    # on a network that others share: certificates for this cluster alone
    "security": True,
    "shared_temp_directory": ".",
    "scheduler_options": {"dashboard_address": "127.0.0.1:0"},
}


def fit(dataset: str, run: str, jobs: int = 4, **options: object) -> FitResult:
    """Train on at most `jobs` jobs; those that start late, end or are requeued change nothing but time."""
    # dask-jobqueue has Ctrl-C end the process at once; `distls` saves a checkpoint first
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = {**OPTIONS, **options}
    with SLURMCluster(**options) as cluster:
        cluster.scale(jobs=jobs)
        with Client(cluster) as client:
            client.wait_for_workers(1)
            # both run on the client that is open
            if (Path(run) / "config.json").exists():
                return distls.resume(run)
            # the method is chosen for the threads of all jobs, whichever have started
            return distls.fit(dataset, run, parallelism=jobs * int(str(options["cores"])))


if __name__ == "__main__":
    result = fit(*sys.argv[1:3])
    print(f"{result.status}: {result.passes:g} passes, {result.seconds:.0f} s")
