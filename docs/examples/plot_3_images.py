"""
Images
======

Pixels are dense features. A linear model of pixels is a template for each class; generated features (random Fourier
features, an approximate Gaussian kernel) make it a better classifier, and are never stored.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import distls

folder = Path(tempfile.mkdtemp())
X, y = load_digits(return_X_y=True)
distls.ingest(X[:1200], folder / "train", y=y[:1200], transform="scale=16")
distls.ingest(X[1200:], folder / "test", y=y[1200:], like=folder / "train")

# %%
# `gls`, least squares in the metric of the second moments, suits few dense features that are correlated, as pixels are.
pixels = distls.fit(
    "gls", folder / "train", folder / "pixels", params={"alpha": 1e-3}
)
print(
    f"pixels: error {distls.evaluate(folder / 'pixels', folder / 'test').error:.3f}"
)

# %%
# `stagewise` fits one block of 512 generated features after the other.
fourier = distls.fit(
    "stagewise",
    folder / "train",
    folder / "fourier",
    params={"features": "fourier", "block_size": 512, "stages": 2},
)
print(
    f"Fourier features: error {distls.evaluate(folder / 'fourier', folder / 'test').error:.3f}"
)

# %%
# The weights of the first model, one image for each class: red pixels speak for the digit, blue ones against it.
figure, axes = plt.subplots(2, 5, figsize=(5, 2.8), layout="constrained")
weights = pixels.model.coef_
for digit, (axis, template) in enumerate(zip(axes.flat, weights, strict=True)):
    axis.imshow(
        template.reshape(8, 8),
        cmap="RdBu_r",
        vmin=-abs(weights).max(),
        vmax=abs(weights).max(),
    )
    axis.set(title=str(digit), xticks=[], yticks=[])
plt.show()
