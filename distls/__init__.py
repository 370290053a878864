"""Out-of-core, distributed training of linear, generalised-linear and multi-class models.

The public names are loaded on first use (PEP 562), so that a worker process that imports `distls.workers`
never imports the driver, the estimators or scikit-learn.
"""

from __future__ import annotations

__version__ = "0.1.0"
