"""deploy/kubernetes: of the shape of the operator's resources, confined, and what its pods run trains, with TLS too."""

import copy
import importlib.util
import re
from pathlib import Path

import pytest
import yaml
from dask.utils import parse_bytes
from deploy_helpers import DEPLOY, example, manifests, misfits, sha256_of, write_secret
from distributed.security import Security

from distls import __version__

# Of Kubernetes, and of the custom resources of dask-kubernetes 2026.3, only what is used here.
RESOURCES = {"cpu!": str, "memory!": str}
PROBE = {"tcpSocket!": {"port!": str}, "initialDelaySeconds": int, "periodSeconds": int}
CONTAINER = {
    "name!": str,
    "image!": str,
    "command!": [str],
    "args!": [str],
    "env!": [{"name!": str, "value!": str}],
    "ports": [{"name!": str, "containerPort!": int, "protocol": {"TCP"}}],
    "readinessProbe": PROBE,
    "livenessProbe": PROBE,
    "resources!": {"requests!": RESOURCES, "limits!": RESOURCES},
    "securityContext!": {
        "allowPrivilegeEscalation!": {False},
        "readOnlyRootFilesystem!": {True},
        "capabilities!": {"drop!": [{"ALL"}]},
    },
    "volumeMounts!": [{"name!": str, "mountPath!": str, "readOnly": bool}],
}
VOLUME = {
    "name!": str,
    "emptyDir": {},
    "persistentVolumeClaim": {"claimName!": str},
    "secret": {"secretName!": str, "optional": bool, "defaultMode": int},
}
POD = {
    "restartPolicy": {"Never"},
    "terminationGracePeriodSeconds": int,
    "automountServiceAccountToken!": {False},
    "securityContext!": {
        "runAsNonRoot!": {True},
        "runAsUser!": int,
        "runAsGroup!": int,
        "fsGroup!": int,
        "fsGroupChangePolicy": {"OnRootMismatch", "Always"},
        "seccompProfile!": {"type!": {"RuntimeDefault"}},
    },
    "containers!": [CONTAINER],
    "volumes!": [VOLUME],
}
SERVICE = {
    "type!": {"ClusterIP"},
    "selector!": {str: str},
    "ports!": [{"name!": str, "protocol": {"TCP"}, "port!": int, "targetPort!": str}],
}
CLUSTER = {"scheduler!": {"spec!": POD, "service!": SERVICE}, "worker!": {"replicas": int, "spec!": POD}}
PEERS = {"podSelector": {"matchLabels!": {str: str}}, "namespaceSelector": {"matchLabels!": {str: str}}}
SPECS = {
    ("kubernetes.dask.org/v1", "DaskCluster"): CLUSTER,
    ("kubernetes.dask.org/v1", "DaskJob"): {"job!": {"spec!": POD}, "cluster!": {"spec!": CLUSTER}},
    ("networking.k8s.io/v1", "NetworkPolicy"): {
        "podSelector!": {"matchLabels!": {str: str}},
        "policyTypes!": [{"Ingress"}],
        "ingress!": [{"from!": [PEERS], "ports": [{"protocol!": {"TCP"}, "port!": int}]}],
    },
    ("v1", "PersistentVolumeClaim"): {
        "accessModes!": [{"ReadWriteMany"}],
        "resources!": {"requests!": {"storage!": str}},
    },
}
DOCUMENTS = {
    f"{name}:{document['kind']}": document
    for name in ("shared", "cluster", "job")
    for document in manifests(f"kubernetes/{name}.yaml")
}
CLUSTERS = {
    "cluster": DOCUMENTS["cluster:DaskCluster"]["spec"],
    "job": DOCUMENTS["job:DaskJob"]["spec"]["cluster"]["spec"],
}
NAMES = {"cluster": "distls", "job": "distls-fit"}
JOB = DOCUMENTS["job:DaskJob"]["spec"]["job"]["spec"]


def _pods():
    pods = {f"{name} {role}": spec[role]["spec"] for name, spec in CLUSTERS.items() for role in spec}
    return {**pods, "job": JOB}


def _container(pod):
    (container,) = pod["containers"]
    return dict(container)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_are_as_specified(name):
    document = DOCUMENTS[name]
    spec = SPECS[document["apiVersion"], document["kind"]]
    shape = {"apiVersion!": str, "kind!": str, "metadata!": {"name!": str}, "spec!": spec}
    assert misfits(document, shape) == []


def _closed(schema):
    """Return a schema that refuses keys without a name in it, which Kubernetes would drop."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _closed(item) for key, item in schema.items()}
    named = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    return {"additionalProperties": False, **made} if named else made


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_operators_own_schema_admits_them(name):
    validator = pytest.importorskip("jsonschema", reason="needs jsonschema").Draft4Validator
    # found and not imported: its resources are read, and what it needs is much
    operator = importlib.util.find_spec("dask_kubernetes")
    if operator is None:
        pytest.skip("needs the resources of the operator: pip install --no-deps dask-kubernetes")
    (document,) = (each for key, each in DOCUMENTS.items() if key.startswith(f"{name}:Dask"))
    (file,) = Path(operator.submodule_search_locations[0]).rglob(f"crds/{document['kind'].lower()}.yaml")
    definition = yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]
    (version,) = definition["versions"]
    assert document["apiVersion"] == f"{definition['group']}/{version['name']}"
    schema = _closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    assert [error.message for error in validator(schema).iter_errors(document["spec"])] == []
    wrong = copy.deepcopy(document["spec"])
    wrong.get("cluster", {"spec": wrong})["spec"]["worker"]["spec"]["containers"][0]["arg"] = []
    assert not validator(schema).is_valid(wrong)


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_service_leads_to_the_scheduler(name):
    scheduler = CLUSTERS[name]["scheduler"]
    # the operator gives pods these labels, and the service the name that the address has
    assert scheduler["service"]["selector"] == {"dask.org/cluster-name": NAMES[name], "dask.org/component": "scheduler"}
    container = _container(scheduler["spec"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    served = {port["targetPort"]: port["port"] for port in scheduler["service"]["ports"]}
    assert served == ports
    assert ports["tcp-comm"] == 8786
    assert container["readinessProbe"]["tcpSocket"]["port"] == "tcp-comm"
    for pod in (scheduler["spec"], CLUSTERS[name]["worker"]["spec"]):
        environment = {item["name"]: item["value"] for item in _container(pod)["env"]}
        assert environment["DASK_SCHEDULER_ADDRESS"] == f"{NAMES[name]}-scheduler:8786"


@pytest.mark.parametrize("name", CLUSTERS)
def test_only_the_cluster_itself_and_the_operator_are_admitted(name):
    policy = DOCUMENTS[f"{name}:NetworkPolicy"]["spec"]
    own = {"matchLabels": {"dask.org/cluster-name": NAMES[name]}}
    assert policy["podSelector"] == own
    assert policy["ingress"][0] == {"from": [{"podSelector": own}]}
    others = [peer for rule in policy["ingress"][1:] for peer in rule["from"]]
    operator = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "dask-operator"}}}
    # only a cluster that stays is scaled
    assert others == ([operator] if name == "cluster" else [])
    dashboard = _container(CLUSTERS[name]["scheduler"]["spec"])["args"][-1]
    assert dashboard == (":8787" if name == "cluster" else "127.0.0.1:8787")


@pytest.mark.parametrize("pod", _pods())
def test_pods_mount_what_they_use_and_run_as_the_image_does(pod):
    spec = _pods()[pod]
    container = _container(spec)
    assert container["image"] == f"distls:{__version__}"
    user = re.search(r"^USER (\d+):(\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    context = spec["securityContext"]
    assert [str(context["runAsUser"]), str(context["runAsGroup"])] == [*user.groups()]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {
        "/shared", "/tls", "/cache", "/tmp",
    }  # fmt: skip
    (claim,) = (v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"] if v["name"] == "shared")
    assert claim == DOCUMENTS["shared:PersistentVolumeClaim"]["metadata"]["name"]


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_worker_may_use_what_its_container_has(name):
    container = _container(CLUSTERS[name]["worker"]["spec"])
    words = container["args"]
    limits = container["resources"]["limits"]
    assert container["resources"]["requests"] == limits
    assert parse_bytes(words[words.index("--memory-limit") + 1]) == parse_bytes(f"{limits['memory']}B")
    assert words[words.index("--nthreads") + 1] == limits["cpu"]
    # a nanny would be a process beside the worker, in the same memory
    assert "--no-nanny" in words


def test_both_clusters_run_the_same():
    for role in ("scheduler", "worker"):
        stays, ends = (_container(spec[role]["spec"]) for spec in CLUSTERS.values())
        for part in ("command", "securityContext", "volumeMounts"):
            assert stays[part] == ends[part]
        # but for the scheduler's dashboard
        assert stays["args"][:-1] == ends["args"][:-1]


def _start(started, container, **given):
    """Start a container; its environment is what it names and what the operator adds."""
    environment = {**given, **{item["name"]: item["value"] for item in container["env"]}}
    words = [*container["command"], *container["args"]]
    started.start([re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], word) for word in words], environment)


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_a_job_trains_the_same_weights_and_resumes(shared, serial, encrypted):
    secret = shared.parent / "tls"
    secret.mkdir()
    security = None
    if encrypted:
        write_secret(secret)
        files = {"tls_ca_file": "ca.pem", "tls_client_cert": "cert.pem", "tls_client_key": "key.pem"}
        security = Security(**{name: str(secret / file) for name, file in files.items()}, require_encryption=True)
    names = {"distls-fit-scheduler": "127.0.0.1", "/shared": str(shared), "/tls": str(secret)}
    with example(shared, names) as started:
        _start(started, _container(CLUSTERS["job"]["scheduler"]["spec"]))
        for index in range(2):
            name = f"distls-fit-default-worker-{index}"
            _start(started, _container(CLUSTERS["job"]["worker"]["spec"]), DASK_WORKER_NAME=name)
        with started.client(2, security) as client:
            workers = client.scheduler_info()["workers"]
            assert {worker["name"] for worker in workers.values()} == {
                f"distls-fit-default-worker-{index}" for index in range(2)
            }
            assert {address.split("://")[0] for address in workers} == {"tls" if encrypted else "tcp"}
        container = _container(JOB)
        job = [*container["command"], *container["args"]]
        environment = {item["name"]: item["value"] for item in container["env"]}
        first, again = started.run(job, environment), started.run(job, environment)
    assert first.returncode == 0, first.stderr
    assert sha256_of(shared / "run") == serial
    # of a run that has ended nothing is left to do
    assert (again.returncode, again.stdout.partition(" ")[0]) == (0, "CONVERGED:"), again.stderr
    assert sha256_of(shared / "run") == serial
