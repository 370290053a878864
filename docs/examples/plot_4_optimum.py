"""
A model at once, then the optimum
=================================

`sgd` gives a good model after one pass. `sdca` goes on from it to the optimum and proves how far it still is: the
shaded band is where the optimum must be.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import distls

folder = Path(tempfile.mkdtemp())
distls.generate("rcv1-4", folder / "train", rows=20_000)
test = folder / "train-test"

# %%
# One pass of stochastic gradients over 20,000 generated documents of 47,236 words, four classes.
fast = distls.fit(
    "sgd",
    folder / "train",
    folder / "fast",
    params={"loss": "log", "alpha": 3e-5},
    passes=1,
)
error = distls.evaluate(fast.model, test).error
print(f"error {error:.4f}")
print(f"objective {fast.record['objective']:.5f}")

# %%
# Dual coordinate ascent from there, evaluated after every pass, until the gap is at most 0.01 % of the objective.
best = distls.fit(
    "sdca",
    folder / "train",
    folder / "best",
    params={"loss": "log", "alpha": 3e-5, "init": str(folder / "fast")},
    rtol=1e-4,
    eval_data=test,
    eval_every=1,
)
error = distls.evaluate(best.model, test).error
gap = best.record["certificate"]["value"]
print(f"error {error:.4f}")
print(f"objective {best.record['objective']:.5f}")
print(f"at most {gap:.1e} above the optimum")

# %%
from distls.reporting.run_report import report

rounds = [
    event
    for event in report(folder / "best").to_json()["events"]
    if "certificate" in event
]
passes = [event["passes"] for event in rounds]
objective = [event["objective"] for event in rounds]
proven = [event["objective"] - event["certificate"]["value"] for event in rounds]

figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.plot(passes, objective, marker="o", label="objective")
axes.fill_between(
    passes, proven, objective, alpha=0.25, label="contains the optimum"
)
axes.axhline(
    fast.record["objective"], linestyle="--", color="grey", label="sgd, one pass"
)
axes.set(
    xlabel="passes of sdca",
    xticks=passes,
    ylabel="objective",
    ylim=(objective[-1] * 0.8, fast.record["objective"] * 1.1),
)
axes.legend()
plt.show()
