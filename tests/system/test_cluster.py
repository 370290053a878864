"""A real `dask scheduler` with real `dask worker` processes: the same bits, refusals in one line, TLS."""

import json
import os
import subprocess
import sys

import pytest
from cluster_helpers import cluster
from deploy_helpers import write_certificate
from distributed.security import Security
from helpers import SECONDS

from distls.training.fitting import fit

PARAMS = {"alpha": 1e-4}
PASSES = 3
UNUSED = "tcp://127.0.0.1:9"  # the port of the discard service, which nothing serves


class Started:
    """A `distls` command in the background."""

    def __init__(self, *arguments, environment=None):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "distls", *map(str, arguments)], env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def end(self):
        """Wait; return exit code, stdout, stderr."""
        try:
            out, error = self._process.communicate(timeout=SECONDS)
        finally:
            self._process.kill()
        return self._process.returncode, out, error


def _fit(documents, run, address, **options):
    pairs = [part for name, value in PARAMS.items() for part in ("-p", f"{name}={value}")]
    limits = ("--passes", PASSES, "--eval-every", 0, "--quiet")
    return Started("fit", "mcid", documents, run, "--scheduler", address, *pairs, *limits, **options)


@pytest.fixture(scope="module")
def undisturbed(documents):
    return fit("mcid", documents, params=PARAMS, passes=PASSES, eval_every=0).model.sha256


@pytest.fixture(scope="module")
def unanswered(documents, tmp_path_factory):
    """Fits that can only wait, started first and collected last."""
    folder = tmp_path_factory.mktemp("empty")
    with cluster(folder) as empty:
        yield {
            "nobody": (_fit(documents, folder / "a", UNUSED), UNUSED),
            "no workers": (_fit(documents, folder / "b", empty.address), empty.address),
        }


@pytest.mark.usefixtures("unanswered")
def test_same_bits_and_blind_workers_are_named(documents, tmp_path, undisturbed):
    (tmp_path / "blind.py").write_text(
        "import distls.workers.rounds.worker_checks\n"
        "from distls.storage.errors import FormatError\n"
        "def blind(path):\n"
        "    raise FormatError(f'{path}: no such data set')\n"
        "distls.workers.rounds.worker_checks.open_dataset = blind\n"
    )
    with cluster(tmp_path) as made:
        made.add_worker()
        made.add_worker()
        made.wait_for_workers(2)
        code, out, error = _fit(documents, tmp_path / "run", made.address).end()
        assert (code, error) == (0, "")
        assert out.startswith("MAX_PASSES: 3 passes, ")
        assert json.loads((tmp_path / "run" / "status.json").read_text())["weights_sha256"] == undisturbed
        code, out, error = Started("plan", "mcid", documents, "--json", "--no-probe", "--scheduler", made.address).end()
        assert (code, error) == (0, "")
        assert json.loads(out)["worker_limit"] == 2**30
        made.add_worker("--name", "blind", "--preload", str(tmp_path / "blind.py"))
        made.wait_for_workers(3)
        code, out, error = _fit(documents, tmp_path / "blind", made.address).end()
    assert (code, out, error.count("\n")) == (1, "", 1)
    assert error.startswith("distls: worker tcp://127.0.0.1:")
    assert error.endswith(f": {documents}: no such data set\n")


def _security(folder):
    files = {"tls_ca_file": "cert.pem", "tls_client_cert": "cert.pem", "tls_client_key": "key.pem"}
    return Security(require_encryption=True, **{name: str(folder / file) for name, file in files.items()})


@pytest.mark.slow
@pytest.mark.usefixtures("unanswered")
def test_tls_by_dasks_own_configuration(documents, tmp_path, undisturbed):
    (tmp_path / "config").mkdir()
    write_certificate(tmp_path)
    pair = f"{{cert: {tmp_path}/cert.pem, key: {tmp_path}/key.pem}}"
    (tmp_path / "config" / "tls.yaml").write_text(
        "distributed:\n  comm:\n    require-encryption: true\n    tls:\n"
        f"      ca-file: {tmp_path}/cert.pem\n"
        f"      scheduler: {pair}\n      worker: {pair}\n      client: {pair}\n"
    )
    secure = {"DASK_CONFIG": str(tmp_path / "config")}
    with cluster(tmp_path, "--protocol", "tls", environment=secure) as made:
        assert made.address.startswith("tls://127.0.0.1:")
        made.add_worker()
        made.add_worker()
        made.wait_for_workers(2, _security(tmp_path))
        plain = _fit(documents, tmp_path / "plain", made.address.replace("tls", "tcp"))
        keyless = _fit(documents, tmp_path / "keyless", made.address)
        trusted = _fit(documents, tmp_path / "run", made.address, environment=secure)
        assert trusted.end()[::2] == (0, "")
        assert json.loads((tmp_path / "run" / "status.json").read_text())["weights_sha256"] == undisturbed
        tcp = made.address.replace("tls", "tcp")
        told = {
            plain: (1, f"no Dask scheduler at {tcp}: it speaks TLS; use tls:// with --tls-ca, --tls-cert and "),
            keyless: (2, f"--scheduler {made.address}: TLS needs certificates: give --tls-ca, --tls-cert and "),
        }  # fmt: skip
        for refused, (number, message) in told.items():
            code, out, error = refused.end()
            assert (code, out, error.count("\n")) == (number, "", 1), error
            assert error.startswith(f"distls: {message}--tls-key")
    assert not (tmp_path / "plain").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "message"),
    [
        ("nobody", "distls: no Dask scheduler at {0}: "),
        ("no workers", "distls: the scheduler at {0} has no workers; start some with `dask worker {0}`\n"),
    ],
)
def test_no_answer_is_one_line(unanswered, who, message):
    started, address = unanswered[who]
    code, out, error = started.end()
    assert (code, out, error.count("\n")) == (1, "", 1), error
    assert error.startswith(message.format(address))
