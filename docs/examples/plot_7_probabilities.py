"""
Probabilities one can trust
===========================

A model that was trained until it separates its rows is too sure of itself on others. A calibration fitted on held-out
rows mends that, and gives probabilities to hinges, which have none.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification

import distls

folder = Path(tempfile.mkdtemp())
X, y = make_classification(
    6000,
    300,
    n_informative=30,
    n_classes=3,
    n_clusters_per_class=1,
    class_sep=0.7,
    flip_y=0.1,
    random_state=0,
)
distls.ingest(X[:1000], folder / "train", y=y[:1000])
distls.ingest(X[1000:2000], folder / "held", y=y[1000:2000], like=folder / "train")
distls.ingest(X[2000:], folder / "test", y=y[2000:], like=folder / "train")

# %%
# Logistic regression with hardly a penalty: 1,000 rows of 300 features are learnt by heart.
run = distls.fit(
    "sdca",
    folder / "train",
    folder / "run",
    params={"loss": "log", "alpha": 1e-3},
    rtol=0.01,
)
distls.calibrate(folder / "run", folder / "held")
found = distls.evaluate(folder / "run", folder / "test").to_json()
for name, values in (("as trained", found["uncalibrated"]), ("calibrated", found)):
    print(
        f"{name}: calibration error {values['calibration_error']:.3f}, log loss {values['log_loss']:.3f}"
    )

# %%
# The classes stay the same, their probabilities do not. On the dashed line a model is right as often as it says.
figure, axes = plt.subplots(figsize=(5, 4.5), layout="constrained")
for curve, name in (
    (found["uncalibrated"]["reliability"], "as trained"),
    (found["reliability"], "calibrated"),
):
    bins = [b for b in curve if b["n_rows"] >= 30]
    axes.plot(
        [b["confidence"] for b in bins],
        [b["accuracy"] for b in bins],
        "o-",
        label=name,
    )
axes.plot([0.3, 1], [0.3, 1], "--", color="grey")
axes.set(xlabel="probability of the predicted class", ylabel="share that is right")
axes.legend()
plt.show()
