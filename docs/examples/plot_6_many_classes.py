"""
Many classes
============

53 classes of very different sizes. One error rate hides what happens to the small ones; top-k accuracy and the F1 of
each class show it.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import distls

folder = Path(tempfile.mkdtemp())
distls.generate("rcv1-53", folder / "train", rows=20_000)
test = folder / "train-test"

# %%
# Three passes of `sgd`, and the same with rows weighted by the inverse size of their class.
plain = distls.fit(
    "sgd", folder / "train", folder / "plain", params={"loss": "log"}, passes=3
)
weighted = distls.fit(
    "sgd",
    folder / "train",
    folder / "weighted",
    params={"loss": "log", "class_weight": "balanced"},
    passes=3,
)
for run in (plain, weighted):
    found = distls.evaluate(run.model, test).to_json()
    top = {
        entry["k"]: round(entry["accuracy"], 3) for entry in found["top_k_accuracy"]
    }
    print(
        f"error {found['error']:.3f}, macro F1 {found['macro_f1']:.3f}, top-k accuracy {top}"
    )

# %%
# The F1 of each class by its rows in the test data.
figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
for run, name in ((plain, "plain"), (weighted, "class_weight=balanced")):
    classes = [
        c
        for c in distls.evaluate(run.model, test).to_json()["per_class"]
        if c["n_rows"]
    ]
    axes.plot(
        [c["n_rows"] for c in classes],
        [c["f1"] for c in classes],
        "o",
        alpha=0.7,
        label=name,
    )
axes.set(xscale="log", xlabel="rows of the class in the test data", ylabel="F1")
axes.legend()
plt.show()
