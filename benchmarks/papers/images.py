"""CIFAR-10 from a folder of JPEG files in an archive, decoded with Pillow, as a dataset."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import distls

__all__ = ["cifar"]


def cifar(source: Path, place: Path) -> tuple[Path, Path]:
    """Ingest the archive ``cifar10-jpeg/cifar10_jpegs.tar.xz`` once; return training and test dataset.

    Rows are images of 32 x 32 pixels in three planes, values / 255.
    """
    train, test = place / "cifar", place / "cifar-test"
    if not train.exists():
        parts = _decoded(source / "cifar10-jpeg" / "cifar10_jpegs.tar.xz")
        x, y = parts["train"]
        distls.ingest(x, train, y=y, transform=("scale=255",))
        x, y = parts["test"]
        distls.ingest(x, test, y=y, like=train)
    return train, test


def _decoded(archive: Path) -> dict[str, tuple[NDArray[np.float32], NDArray[np.str_]]]:
    from PIL import Image

    found: dict[str, tuple[list[NDArray[np.float32]], list[str]]] = {"train": ([], []), "test": ([], [])}
    with tarfile.open(archive, "r:xz") as files:
        for member in files:
            if not member.name.endswith(".jpg"):
                continue
            part, label = Path(member.name).parts[-3:-1]
            content = files.extractfile(member)
            assert content is not None
            pixels = np.asarray(Image.open(io.BytesIO(content.read())).convert("RGB"), np.float32)
            found[part][0].append(pixels.transpose(2, 0, 1).reshape(-1))
            found[part][1].append(label)
    return {part: (np.stack(rows), np.array(labels)) for part, (rows, labels) in found.items()}
