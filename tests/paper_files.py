"""Small files of the shapes in which the owners of the papers' data sets distribute them."""

import bz2
import gzip
from pathlib import Path

import numpy as np

# the beginning of rcv1.topics.hier.orig
HIERARCHY = """parent: None child: Root            child-description: Root
parent: Root child: CCAT            child-description: CORPORATE/INDUSTRIAL
parent: Root child: ECAT            child-description: ECONOMICS
parent: CCAT child: C15             child-description: PERFORMANCE
parent: C15 child: C151            child-description: ACCOUNTS/EARNINGS
parent: CCAT child: C31             child-description: MARKETS/MARKETING
parent: ECAT child: E11             child-description: ECONOMIC PERFORMANCE
"""
# of a document in turn: one class at both levels; another; two at both; one at the first, two at the second; one at the
# first alone; none
TOPICS = (
    ("C15", "C151", "CCAT"),
    ("E11", "ECAT"),
    ("C15", "CCAT", "E11", "ECAT"),
    ("C15", "C31", "CCAT"),
    ("CCAT",),
    (),
)
FIRST_ID = 2286


def rcv1_rows(n_rows: int) -> list[list[int]]:
    """Return the terms of each document, none of every eleventh."""
    random = np.random.default_rng(5)
    drawn = [sorted(random.choice(np.arange(1, 60), 6, replace=False).tolist()) for _ in range(n_rows)]
    return [[] if n % 11 == 7 else terms for n, terms in enumerate(drawn)]


def write_rcv1(folder: Path, n_rows: int = 240) -> None:
    """Write vectors, tokens, topics and hierarchy of RCV1-v2 as LYRL2004 has them."""
    rows = rcv1_rows(n_rows)
    ids = [FIRST_ID + n for n in range(n_rows)]
    weights = np.random.default_rng(6).random((n_rows, 60))
    vectors = (
        f"{i} " + "".join(f" {t}:{weights[n, t]:.16f}" for t in terms)
        for n, (i, terms) in enumerate(zip(ids, rows, strict=True))
    )
    tokens = (
        f".I {i}\n.W\n{' '.join(f'w{t}' for t in terms[:4])}\n{' '.join(f'w{t}' for t in terms[4:])}\n\n"
        for i, terms in zip(ids, rows, strict=True)
    )
    judged = (f"{topic} {i} 1\n" for n, i in enumerate(ids) for topic in TOPICS[n % len(TOPICS)])
    (folder / "lyrl2004_vectors_train.dat").write_text("".join(f"{line}\n" for line in vectors))
    (folder / "lyrl2004_tokens_train.dat").write_text("".join(tokens))
    (folder / "rcv1-v2.topics.qrels").write_text("".join(judged))
    (folder / "rcv1.topics.hier.orig").write_text(HIERARCHY)


_RDF = """<?xml version="1.0" encoding="UTF-8"?>
<RDF xmlns:r="http://www.w3.org/TR/RDF/" xmlns:d="http://purl.org/dc/elements/1.0/" xmlns="http://dmoz.org/rdf/">
  <!-- Generated at 2005-01-01 00:00:00 GMT from DMOZ 2.0 -->
"""
PAGE_TOPICS = ("Arts/Animation", "Arts/Movies/Titles", "Business/Food_and_Related_Products", "Business")


def write_directory(folder: Path, n_pages: int = 200) -> None:
    """Write content and structure of the Open Directory."""
    pages = "".join(
        f'<ExternalPage about="http://e{n}.example.org/?a=1&amp;b=2">\n  <d:Title>Caf\u00e9 {n % 7}</d:Title>\n'
        f"  <d:Description>film{n % 5} &lt;b&gt; trade{n % 3}</d:Description>\n  <priority>1</priority>\n"
        f"  <topic>Top/{PAGE_TOPICS[n % len(PAGE_TOPICS)]}</topic>\n</ExternalPage>\n"
        for n in range(n_pages)
    )
    topic = '<Topic r:id="Top/Arts/Animation">\n  <catid>2</catid>\n  <link r:resource="http://e0.example.org/"/>\n</Topic>\n'
    content = f"{_RDF}{topic}{pages}</RDF>\n"
    (folder / "content.rdf.u8.gz").write_bytes(gzip.compress(content.encode()))
    tree = {
        "": ["Top"], "Top": ["Top/Arts", "Top/Business"], "Top/Arts": ["Top/Arts/Animation", "Top/Arts/Movies"],
        "Top/Arts/Movies": ["Top/Arts/Movies/Titles"], "Top/Business": ["Top/Business/Food_and_Related_Products"],
    }  # fmt: skip
    topics = "".join(
        f'<Topic r:id="{name}">\n  <catid>{n}</catid>\n  <d:Title>{name.rpartition("/")[2]}</d:Title>\n'
        + "".join(f'  <narrow{n % 3 or ""} r:resource="{child}"/>\n' for child in children)
        + '  <symbolic r:resource="Titles:Top/Arts/Movies/Titles"></symbolic>\n</Topic>\n'
        for n, (name, children) in enumerate(tree.items())
    )
    (folder / "structure.rdf.u8").write_text(f"{_RDF}{topics}</RDF>\n", encoding="utf-8")


def write_alpha(folder: Path, n_rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Write rows and labels of a set of the PASCAL challenge, each line with a blank at its end; return them."""
    x = np.random.default_rng(7).standard_normal((n_rows, 12)).round(6)
    y = np.where(x[:, 0] > 0, 1, -1)
    lines = "".join(" ".join(f"{value:.6f}" for value in row) + " \n" for row in x)
    (folder / "alpha_train.dat").write_text(lines)
    (folder / "alpha_train.dat.bz2").write_bytes(bz2.compress(lines.encode()))
    (folder / "alpha_train.lab").write_text("".join(f"{label}\n" for label in y))
    return x, y


def write_cifar(folder: Path, n_rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Write two batches of CIFAR-10 and one file of CIFAR-100; return pixels and classes of the former."""
    random = np.random.default_rng(8)
    y, x = random.integers(0, 10, n_rows), random.integers(0, 256, (n_rows, 3072))
    for number, rows in enumerate(np.array_split(np.arange(n_rows), 2), 1):
        np.column_stack([y[rows], x[rows]]).astype(np.uint8).tofile(folder / f"data_batch_{number}.bin")
    fine = np.arange(n_rows) % 100
    np.column_stack([fine // 5, fine, x]).astype(np.uint8).tofile(folder / "train.bin")
    return x, y
