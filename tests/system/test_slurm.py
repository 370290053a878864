"""deploy/slurm on a real SLURM: its daemons started here, as one node that claims to have eight cores."""

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from deploy_helpers import DEPLOY, sha256_of, write_secret
from helpers import SECONDS, free_port, labelled_rows, wait_until, write_dataset

from distls.training.fitting import fit

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "squeue", "sinfo")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"needs slurm-wlm and munge: no {', '.join(MISSING)}"),
    # importing it would change what Ctrl-C does
    pytest.mark.skipif(importlib.util.find_spec("dask_jobqueue") is None, reason="needs dask-jobqueue"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]

PASSES = 40
CONFIGURATION = """
ClusterName=distls
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={daemon}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=2
SlurmdParameters=config_overrides
NodeName=node NodeHostname={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=16000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """Munge, controller and one node, with all they write in one folder."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        configuration = folder / "slurm.conf"
        configuration.write_text(
            CONFIGURATION.format(folder=folder, controller=free_port(), daemon=free_port(), host=socket.gethostname())
        )
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        settings = {"DASK_CONFIG": str(DEPLOY / "distls.yaml"), "SLURM_CONF": str(configuration), "PATH": path}
        self.environment = {**os.environ, **settings}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self):
        """Start the daemons; skip where they may not run."""
        self._daemon("munged", "--foreground", "--force", *self._munge_files())
        self._until(lambda: (self.folder / "munge.socket").exists())
        self._daemon("slurmctld", "-D")
        self._daemon("slurmd", "-D", "-N", "node")
        self._until(lambda: self.command("sinfo", "--noheader", "--format=%T").stdout.strip() == "idle")

    def _munge_files(self):
        names = {
            "socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed",
        }  # fmt: skip
        return [f"--{option}={self.folder}/munge.{name}" for option, name in names.items()]

    def _daemon(self, *command):
        with (self.folder / f"{command[0]}.out").open("wb") as out:
            self._daemons.append(
                subprocess.Popen(command, env=self.environment, stdout=out, stderr=out, start_new_session=True)
            )

    def _until(self, condition):
        wait_until(lambda: any(daemon.poll() is not None for daemon in self._daemons) or condition())
        for daemon in self._daemons:
            if daemon.poll() is not None:
                program = str(daemon.args[0])
                pytest.skip(f"{program} does not run here: {(self.folder / f'{program}.out').read_text()[-300:]}")

    def command(self, *words, folder=None):
        """Run a command of SLURM or one that submits jobs."""
        return subprocess.run(words, env=self.environment, cwd=folder, capture_output=True, text=True, timeout=SECONDS)

    def close(self):
        """End jobs and daemons, and whatever else they have started."""
        for daemon in reversed(self._daemons):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURM_CONF") == self.environment["SLURM_CONF"]:
                    process.kill()
        for daemon in self._daemons:
            daemon.wait()


@pytest.fixture(scope="module")
def slurm():
    # sockets have short names
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    folder.chmod(0o755)
    made = Slurm(folder)
    try:
        made.start()
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    path = tmp_path_factory.mktemp("slurm") / "train"
    write_dataset(path, *labelled_rows(1_200, 300, 4))
    return path


@pytest.fixture
def place(tmp_path):
    """Return a folder with the scripts, from which jobs are submitted."""
    return Path(shutil.copytree(DEPLOY / "slurm", tmp_path / "slurm"))


def _weights(*fitted, **limits):
    return fit(*fitted, **limits).model.sha256


def _submit(slurm, place):
    """Submit the example's job with fewer and smaller tasks, and many short passes."""
    small = ("--ntasks=4", "--mem-per-cpu=1G", "--output=%j.log", "--parsable")
    settings = f"--export=ALL,DISTLS_METHOD=mcid,DASK_CONFIG={place / 'settings'}"
    fit = ("fit.sbatch", "train", "run", *f"--passes {PASSES} --eval-every 0 --checkpoint-seconds 0".split())
    ended = slurm.command("sbatch", *small, settings, *fit, folder=place)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def _state(slurm, job):
    """Return what SLURM says of a job, nothing while its controller is too busy to answer."""
    words = slurm.command("scontrol", "show", "job", str(job), "--oneliner").stdout.split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def _end(slurm, place, job):
    """Wait for the end of a job; return its exit code and what it printed."""
    states = []
    wait_until(lambda: states.append(_state(slurm, job)) or states[-1].get("JobState") in ("COMPLETED", "FAILED"))
    return states[-1]["ExitCode"].partition(":")[0], (place / f"{job}.log").read_text()


def _tell_to_end(slurm, place, job):
    """Do as SLURM does before a job's time is over, and then submit it again."""
    assert slurm.command("scancel", "--signal=TERM", str(job)).returncode == 0
    code, log = _end(slurm, place, job)
    assert code == "3", log
    return _submit(slurm, place)


def _requeue(slurm, _place, job):
    """Do as SLURM does when a node is lost: kill the job and start it anew, but without waiting two minutes."""
    assert slurm.command("scontrol", "requeue", str(job)).returncode == 0
    wait_until(lambda: _state(slurm, job).get("JobState") == "PENDING")
    slurm.command("scontrol", "update", f"JobId={job}", "StartTime=now")
    return job


@pytest.mark.slow
@pytest.mark.parametrize(("interrupt", "protocol"), [(_tell_to_end, "tcp"), (_requeue, "tls")])
def test_a_job_that_was_ended_is_continued(slurm, train, place, interrupt, protocol):
    """Fault: SLURM warns a job that its time is nearly over; requeues it, as after the loss of a node | a real
    SLURM, after the third round | exit code 3, a checkpoint; the job starts again; both resume with no round
    missing or repeated | bits"""
    (place / "train").symlink_to(train)
    (place / "settings").mkdir()
    shutil.copy(DEPLOY / "distls.yaml", place / "settings")
    if protocol == "tls":
        write_secret(place / "settings")
    run = place / "run"
    job = _submit(slurm, place)
    events = run / "events.jsonl"
    wait_until(lambda: events.exists() and events.read_text().count("\n") >= 3)
    address = json.loads((place / f"distls-{job}.json").read_text())["address"]
    assert address.startswith(f"{protocol}://")
    job = interrupt(slurm, place, job)
    code, log = _end(slurm, place, job)
    assert code == "0", log
    assert json.loads((run / "status.json").read_text())["passes"] == PASSES
    # it went on from where it was
    rounds = [json.loads(line)["round"] for line in events.read_text().splitlines()]
    assert rounds == list(range(1, PASSES + 1))
    assert sha256_of(run) == _weights("mcid", train, passes=PASSES, eval_every=0)
    # neither scheduler nor workers outlive it, and the file that led to them is gone
    wait_until(lambda: slurm.command("squeue", "--noheader").stdout == "")
    assert list(place.glob("distls-*.json")) == []


def test_a_fit_on_workers_that_are_jobs(slurm, train, place):
    small = {"jobs": 2, "cores": 1, "processes": 1, "memory": "1GiB", "walltime": "00:10:00"}
    script = (
        "import sys, cluster\n"
        "if __name__ == '__main__':\n"
        f"    result = cluster.fit(*sys.argv[1:], **{small})\n"
        "    print(result.status)\n"
    )
    (place / "small.py").write_text(script)
    ended = slurm.command("python", "small.py", str(train), "run", folder=place)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "CONVERGED\n"
    assert sha256_of(place / "run") == _weights(train, parallelism=2)
    logs = "".join(path.read_text() for path in place.glob("slurm-*.out"))
    assert "tls://" in logs
    assert "tcp://" not in logs
    wait_until(lambda: slurm.command("squeue", "--noheader").stdout == "")
