"""The report that follows a run: what it answers, to whom, and that it stays up."""

import http.client
import threading

import pytest
from helpers import SECONDS, labelled_rows, write_dataset

from distls.reporting.live import LiveReport
from distls.storage.errors import FormatError
from distls.training.fitting import fit
from distls.training.run_config import RunConfig
from distls.training.run_folder import Run


@pytest.fixture
def run(tmp_path):
    data = write_dataset(tmp_path / "train", *labelled_rows(200, 30, 3))
    config = RunConfig(
        method="sgd",
        dataset=str(data.path),
        dataset_fingerprint=data.fingerprint,
        seed=0,
        grid=[{"alpha": 0.0}],
    )
    return Run.create(tmp_path / "run", config)


@pytest.fixture
def live(run):
    served = LiveReport(run.path)
    thread = threading.Thread(target=served.serve)
    thread.start()
    yield served
    served.stop()
    thread.join(SECONDS)
    served.close()


def _asked(live, path="/", host=None):
    address = live.address.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(address, timeout=SECONDS)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_only_this_machine_is_answered_and_only_the_page(live):
    assert live.address.startswith("http://127.0.0.1:")
    assert _asked(live)[0] == 200
    assert _asked(live, "/../etc/passwd")[0] == 404
    assert _asked(live, host="attacker.example:80")[0] == 403


@pytest.mark.slow
def test_the_page_follows_the_run(live, run, tmp_path):
    _, page = _asked(live)
    assert '<meta http-equiv="refresh" content="5">' in page
    fit(
        "sgd",
        tmp_path / "train",
        tmp_path / "done",
        params={"loss": "log"},
        passes=1,
        eval_data=tmp_path / "train",
    )
    for event in Run.open(tmp_path / "done").events():
        run.append_event(event)
    assert "<h2>Progress</h2>" in _asked(live)[1]
    (run.path / "status.json").write_text("{")
    assert f"<p>{run.path}: status.json cannot be read; remove " in _asked(live)[1]
    (tmp_path / "done" / "model").rename(run.path / "model")
    (run.path / "status.json").write_text((tmp_path / "done" / "status.json").read_text())
    _, page = _asked(live)
    assert 'http-equiv="refresh"' not in page
    assert "<h2>Strongest features</h2>" in page


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(FormatError, match="no such run"):
        LiveReport(tmp_path / "none")
