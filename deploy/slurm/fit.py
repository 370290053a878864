"""Run a distls command on the tasks of a SLURM job: srun python fit.py fit DATASET RUN [OPTION...]."""

import os
import signal
import sys

from dask_jobqueue.slurm import SLURMRunner
from distributed import Client
from distributed.core import rpc
from distributed.security import Security

from distls.cli import cli
from distls.clock import begin_with_process

DRIVER = "1"  # the task in which SLURMRunner lets the script go on


def worker_options() -> dict[str, object]:
    """Return threads and bytes of one task, as SLURM has given them."""
    cpus = int(os.environ.get("SLURM_CPUS_PER_TASK", "1"))
    options: dict[str, object] = {"nthreads": cpus}
    if "SLURM_MEM_PER_CPU" in os.environ:  # in MiB
        options["memory_limit"] = int(os.environ["SLURM_MEM_PER_CPU"]) * cpus * 2**20
    return options


if __name__ == "__main__":
    if os.environ["SLURM_PROCID"] != DRIVER:
        # SLURM tells all tasks that their time is over: the driver saves a checkpoint, and then ends the others
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with SLURMRunner(
        scheduler_file="distls-{job_id}.json", scheduler_options={"dashboard": False}, worker_options=worker_options()
    ) as runner:
        # dask-jobqueue has Ctrl-C end the process at once; `distls` saves a checkpoint first
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # with the certificate, if Dask's configuration has one: so that it can end the others too
        runner.scheduler_comm = rpc(runner.scheduler_address, connection_args=Security().get_connection_args("client"))
        with Client(runner) as client:
            client.wait_for_workers(runner.n_workers, timeout=600)
        sys.argv += ["--scheduler", runner.scheduler_address]
        # not `main`, which leaves an interrupted process at once: the others would run on
        begin_with_process()
        cli(prog_name="distls")
