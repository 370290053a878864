"""Trees of classes: napkinXC (PLT) and PECOS (XR-Linear) on the rows of `benchmarks.quality.classes`.

    PYTHON benchmarks/quality/class_trees.py TRAIN.npz TEST.npz

Both need a NumPy before 2, so that PYTHON is an interpreter of their own; `benchmarks.quality.classes --rivals PYTHON`
calls this file with it. Each is trained as its documentation does, with two threads; a line of JSON for each tells its
seconds of training and of prediction, its error and the bytes of its stored model.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

THREADS = 2


def size_of(folder: str) -> int:
    """Return the bytes of the files of a folder."""
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def napkinxc(train: Any, labels: Any, test: Any) -> Any:
    """Yield the bytes of the stored model after training, then the predicted classes."""
    from napkinxc.models import PLT

    with tempfile.TemporaryDirectory() as folder:
        model = PLT(folder, seed=0, threads=THREADS)
        model.fit(train, labels.tolist())
        yield size_of(folder)
        yield np.array([found[0] if found else -1 for found in model.predict(test, top_k=1)])


def pecos(train: Any, labels: Any, test: Any) -> Any:
    """Yield the bytes of the stored model after training, then the predicted classes."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    n, k = len(labels), int(labels.max()) + 1
    targets = sp.csr_matrix((np.ones(n, np.float32), (np.arange(n), labels)), shape=(n, k))
    embedding = LabelEmbeddingFactory.create(targets, train, method="pifa")
    clusters = Indexer.gen(embedding)
    model = XLinearModel.train(train, targets, C=clusters, threads=THREADS)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        yield size_of(folder)
    yield np.asarray(model.predict(test, only_topk=1, threads=THREADS).argmax(axis=1)).ravel()


def main() -> None:
    """Train and test both."""
    (train, labels), (test, truth) = (
        (sp.csr_matrix((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"])), file["labels"])
        for file in map(np.load, sys.argv[1:3])
    )
    for rival in (napkinxc, pecos):
        started = time.perf_counter()
        steps = rival(train, labels, test)
        size = next(steps)
        trained = time.perf_counter()
        found = next(steps)
        row = {
            "program": rival.__name__,
            "seconds": trained - started,
            "predict_seconds": time.perf_counter() - trained,
            "error": 100 * float(np.mean(found != truth)),
            "model_bytes": size,
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
