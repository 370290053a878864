"""The processor that kernels are compiled for."""

import hashlib

import llvmlite.binding as llvm
from numba import config


def processor() -> str:
    """Return the name of the processor, with a digest of its features: kernels for the same one give the same bits."""
    # both may be set in the environment
    name = config.CPU_NAME or llvm.get_host_cpu_name()
    features = config.CPU_FEATURES
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
    # The features too: the same model may have some of them switched off.
    return f"{name}-{hashlib.sha256(features.encode()).hexdigest()[:8]}"
