"""Rows that tests of working sets have in common."""

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import labelled_rows


@pytest.fixture(scope="module", params=["csr", "dense"])
def weighted_rows(request):
    """Return 300 rows with 40 features, five of them with means, their 3 classes, and their unequal weights."""
    x, y = labelled_rows(300, 40, 3)
    full = np.asarray(x.todense())
    full[:, :5] += 0.3
    weight = np.random.default_rng(0).uniform(0.2, 2.0, len(y)).astype(np.float32)
    return sp.csr_matrix(full) if request.param == "csr" else full, y, weight
