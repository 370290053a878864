"""
Few features: a regularization path
===================================

`bcd` minimises a penalty that makes whole features zero, so that a model reads only those it uses. `alpha=path` fits
many strengths, each from the one before, and the error on held-out rows chooses one.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import distls
from distls.reporting.run_report import report

folder = Path(tempfile.mkdtemp())
X, y = load_digits(return_X_y=True)

# %%
# Coordinate descent reads columns: `columns=True` stores the data by columns too.
distls.ingest(
    X,
    folder / "train",
    y=y,
    transform="scale=16",
    split={"held": 0.3},
    columns=True,
)
result = distls.fit(
    "bcd",
    folder / "train",
    folder / "run",
    params={"alpha": "path", "penalty": "l1l2"},
    passes=30,
    select=folder / "train-held",
)
print(result)

# %%
# Strong penalties on the right use few of the 64 pixels; the dotted line is the strength with the lowest error.
settings = sorted(
    report(folder / "run").to_json()["settings"], key=lambda s: s["params"]["alpha"]
)
alphas = [s["params"]["alpha"] for s in settings]
figure, left = plt.subplots(figsize=(5, 3.5), layout="constrained")
left.semilogx(alphas, [s["error"] for s in settings], "o-", color="C0")
left.axvline(result.selected["alpha"], color="grey", linestyle=":")
left.set(xlabel="alpha", ylabel="error on held-out rows (blue)")
right = left.twinx()
right.semilogx(alphas, [s["non_zero_rows"] for s in settings], "s--", color="C1")
right.set(ylabel="pixels used (orange)")
plt.show()

for setting in settings[:: max(1, len(settings) // 6)]:
    print(
        f"alpha {setting['params']['alpha']:.1e}: {setting['non_zero_rows']:2d} pixels, {setting['error']:.3f} error"
    )
