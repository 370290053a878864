"""CIFAR-10 from a folder of JPEG files in an archive, decoded with Pillow, as a dataset; and images compressed so."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import distls
from benchmarks.papers.owners import READERS, are_there
from benchmarks.quality.real import arrays_of


def cifar(source: Path, place: Path, real: Path | None = None) -> tuple[Path, Path]:
    """Ingest the owner's batches in `real`, or the archive ``cifar10-jpeg/cifar10_jpegs.tar.xz``, once.

    Returns training and test dataset.
    Rows are images of 32 x 32 pixels in three planes, values / 255.
    """
    train, test = place / "cifar", place / "cifar-test"
    if not train.exists() and are_there("cifar", real):
        READERS["cifar"](Path(str(real)), train, {})
    elif not train.exists():
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


def compressed(train: Path, test: Path, image: str, place: Path) -> tuple[Path, Path]:
    """Ingest both sets with every image compressed by JPEG of quality 75, colours at half the resolution."""
    held = place.with_name(f"{place.name}-test")
    if not place.exists():
        for source, path in ((train, place), (test, held)):
            x, y = arrays_of(source)
            x = x.toarray() if hasattr(x, "toarray") else x
            small = np.stack([_squeezed(row, image) for row in x])
            distls.ingest(small, path, y=y, **({} if path == place else {"like": place}))
    return place, held


def _squeezed(row: NDArray[np.float32], image: str) -> NDArray[np.float32]:
    """Return an image as it comes back; it is turned by four pixels meanwhile, so that its blocks are others."""
    from PIL import Image

    high, wide, planes = map(int, image.split("x"))
    pixels = np.roll((255 * row).round().astype(np.uint8).reshape(planes, high, wide), (4, 4), axis=(1, 2))
    held = io.BytesIO()
    shown = pixels[0] if planes == 1 else pixels.transpose(1, 2, 0)
    Image.fromarray(shown).save(held, "JPEG", quality=75, subsampling=2)
    back = np.asarray(Image.open(held), np.float32).reshape(high, wide, planes).transpose(2, 0, 1) / 255
    return np.roll(back, (-4, -4), axis=(1, 2)).reshape(-1)
