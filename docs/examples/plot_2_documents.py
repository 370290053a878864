"""
Documents
=========

Which library is a docstring from? Raw text in, one document a line; words are hashed into columns, weighted, and
classified by dual coordinate ascent. The documents are the docstrings of four packages that distls depends on, so no
download is needed, and counts differ a little between their versions.
"""

import ast
import importlib.util
import random
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.metrics import ConfusionMatrixDisplay, confusion_matrix

import distls


def docstrings(package, most=150):
    """Yield the docstrings of functions and classes in the files of a package."""
    for path in sorted(
        Path(importlib.util.find_spec(package).origin).parent.rglob("*.py")
    )[:most]:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                words = (ast.get_docstring(node) or "").replace(package, "").split()
                if len(words) > 15:
                    yield f"{package}\t{' '.join(words[:60])}\n"


documents = sorted(
    {
        line
        for name in ("numpy", "scipy", "sklearn", "dask")
        for line in docstrings(name)
    }
)
random.Random(0).shuffle(documents)
folder = Path(tempfile.mkdtemp())
n_train = len(documents) * 3 // 4
(folder / "train.txt").write_text("".join(documents[:n_train]), encoding="utf-8")
(folder / "test.txt").write_text("".join(documents[n_train:]), encoding="utf-8")
print(len(documents), "documents, such as", documents[0][:70])

# %%
# Words and pairs of words, log(1 + count), inverse document frequency, unit length: the weighting for text. `rtol` ends
# the fit when it is proven to be within 0.1 % of the optimum.
distls.ingest(
    folder / "train.txt",
    folder / "train",
    ngrams="1,2",
    transform="log1p,idf,l2norm",
)
result = distls.fit(
    "sdca", folder / "train", folder / "run", params={"alpha": 1e-4}, rtol=1e-3
)
print(result)

# %%
# Test files go through the recipe of training, which is stored with the model.
distls.ingest(folder / "test.txt", folder / "test", like=folder / "run")
evaluation = distls.evaluate(folder / "run", folder / "test")
print(f"error {evaluation.error:.3f} on {evaluation.n_rows} documents")

# %%
# So does text in memory.
model = distls.load_model(folder / "run")
truth, texts = zip(
    *(line.rstrip("\n").split("\t", 1) for line in documents[n_train:]), strict=True
)
print(model.predict(["Evaluate the spline at x.", "Fit the estimator on X and y."]))

figure, axes = plt.subplots(figsize=(5, 4.5), layout="constrained")
matrix = confusion_matrix(truth, model.predict(list(texts)), labels=model.classes_)
ConfusionMatrixDisplay(matrix, display_labels=model.classes_).plot(
    ax=axes, cmap="Blues", colorbar=False
)
plt.show()
