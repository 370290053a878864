"""deploy/distls.yaml holds what `distls` sets for clusters of its own."""

import yaml
from deploy_helpers import DEPLOY

from distls.execution.dask.local_cluster import _CONFIG

# How a local cluster's processes come to be; those of `dask worker` are its own affair.
OF_LOCAL_CLUSTERS = {"distributed.worker.multiprocessing-method"}
ENVIRONMENT = "distributed.nanny.pre-spawn-environ"


def _flat(tree, prefix=""):
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key != ENVIRONMENT:
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def test_the_file_holds_the_settings_of_local_clusters():
    settings = dict(_flat(yaml.safe_load((DEPLOY / "distls.yaml").read_text())))
    environment = {name: value for name, value in settings[ENVIRONMENT].items() if value is not None}
    # Dask merges: where it has a default of its own, null takes it back
    assert settings[ENVIRONMENT]["MALLOC_TRIM_THRESHOLD_"] is None
    settings[ENVIRONMENT] = {name: str(value) for name, value in environment.items()}
    settings = {key: float(value) if value == "inf" else value for key, value in settings.items()}
    expected = {key: value for key, value in _CONFIG.items() if key not in OF_LOCAL_CLUSTERS}
    expected = {key: float(value) if value == "inf" else value for key, value in expected.items()}
    assert settings == expected
