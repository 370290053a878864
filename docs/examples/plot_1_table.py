"""
A table, and nothing chosen
===========================

A CSV file goes in; method, strength and transforms follow from the data. The table is the breast cancer data of
scikit-learn: 30 measurements of cells, two classes.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer

import distls

folder = Path(tempfile.mkdtemp())
table = load_breast_cancer(as_frame=True).frame.sample(frac=1, random_state=1)
table["target"] = table["target"].map({0: "malignant", 1: "benign"})
table[:300].to_csv(folder / "train.csv", index=False)
table[300:].to_csv(folder / "test.csv", index=False)

# %%
# `distls.train` ingests the file, fits and evaluates. What it decides itself it says through `notify`.
trained = distls.train(
    folder / "train.csv",
    folder / "model",
    test=folder / "test.csv",
    label_column="target",
    notify=print,
)
print(trained.fit)
print(
    f"error on {trained.evaluation.n_rows} other rows: {trained.evaluation.error:.3f}"
)

# %%
# The model predicts frames with the columns of training, in any order.
model = distls.load_model(folder / "model")
print(model.predict(table[300:303]))
print(model.predict_proba(table[300:303]).round(3))

# %%
# Weights belong to features after transforms. The table was standardized, so their sizes can be compared.
names, weights = model.get_feature_names_out(), model.coef_[0]
largest = abs(weights).argsort()[-12:]
figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.barh(
    names[largest],
    weights[largest],
    color=["C3" if w > 0 else "C0" for w in weights[largest]],
)
axes.set(xlabel=f"weight (positive: {model.classes_[1]})")
plt.show()
