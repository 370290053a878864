"""deploy/compose.yaml: of the shape that the Compose specification gives, closed to the outside, and it trains."""

import pytest
from dask.utils import parse_bytes
from deploy_helpers import DEPLOY, example, manifests, misfits, sha256_of

CONDITION = {"condition!": {"service_started", "service_healthy", "service_completed_successfully"}}
SERVICE = {
    "image!": str,
    "build!": {"context!": str, "dockerfile": str},
    "pull_policy": {"always", "never", "missing", "build"},
    "init": bool,
    "read_only": bool,
    "tmpfs": [str],
    "cap_drop": [str],
    "security_opt": [str],
    "volumes": [str],
    "entrypoint": [str],
    "command": [str],
    "environment": {str: str},
    "ports": [str],
    "restart": {"no", "always", "on-failure", "unless-stopped"},
    "healthcheck": {"test!": [str], "interval": str, "timeout": str, "retries": int},
    "depends_on": {str: CONDITION},
    "mem_limit": str,
    "scale": int,
    "profiles": [str],
}
# Only what is used here; what the specification does not know it refuses, but for x-...
SPECIFIED = {"name": str, "services!": {str: SERVICE}, "volumes": {str: {}}}


@pytest.fixture(scope="module")
def compose():
    (document,) = manifests("compose.yaml")
    return {key: value for key, value in document.items() if not key.startswith("x-")}


def test_the_file_is_as_specified(compose):
    assert misfits(compose, SPECIFIED) == []
    services = compose["services"]
    assert set(services) == {"scheduler", "worker", "job"}
    for service in services.values():
        build = service["build"]
        assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
        assert set(service.get("depends_on", {})) < set(services)
        named = {volume.rpartition(":")[0] for volume in service["volumes"]} - {"${DISTLS_SHARED:-shared}"}
        assert named | {"shared"} == set(compose["volumes"])


def test_nothing_is_published_beyond_loopback(compose):
    ports = {name: service.get("ports", []) for name, service in compose["services"].items()}
    assert ports == {"scheduler": ["127.0.0.1:8787:8787"], "worker": [], "job": []}
    for service in compose["services"].values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"] is True


def test_a_worker_may_use_the_memory_of_its_container(compose):
    worker = compose["services"]["worker"]
    given = worker["entrypoint"][worker["entrypoint"].index("--memory-limit") + 1]
    # Compose's gb are powers of two
    assert worker["mem_limit"].removesuffix("gb").isdigit()
    assert parse_bytes(given) == int(worker["mem_limit"].removesuffix("gb")) * 2**30


@pytest.mark.slow
def test_its_commands_train_the_same_weights(compose, shared, serial):
    services = compose["services"]
    hosts = {"//scheduler:": "//127.0.0.1:", "/shared": str(shared)}
    with example(shared, hosts) as started:
        started.start(services["scheduler"]["entrypoint"])
        for _ in range(services["worker"]["scale"]):
            started.start(services["worker"]["entrypoint"])
        with started.client(services["worker"]["scale"]) as client:
            limits = {worker["memory_limit"] for worker in client.scheduler_info()["workers"].values()}
            assert limits == {2 * 2**30}
            healthy = started.run(services["scheduler"]["healthcheck"]["test"][1:])
            assert (healthy.returncode, healthy.stderr) == (0, "")
        job = services["job"]
        ended = started.run(["distls", *job["command"], "--quiet"], job["environment"])
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sha256_of(shared / "run") == serial
