"""Files of the papers' data sets, as their owners distribute them: the rows, classes and counts of each."""

import numpy as np
import pytest
from helpers import refuses
from paper_files import FIRST_ID, TOPICS, rcv1_rows, write_alpha, write_cifar, write_directory, write_rcv1

import distls
from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, ParameterError
from distls.testing.formats import read_all

RCV1 = {"labels": "rcv1-v2.topics.qrels", "label_map": "rcv1.topics.hier.orig", "drop": "several,unknown,empty"}
N_ROWS = 240


def rcv1(folder, name, **options):
    beside = {key: folder / RCV1[key] for key in ("labels", "label_map")}
    source, dataset = folder / f"lyrl2004_{name}_train.dat", folder / f"{name}-{len(options)}"
    return ingest(source, dataset, **{**RCV1, **beside, **options}), open_dataset(dataset)


@pytest.mark.slow_cases("1-")
@pytest.mark.parametrize(
    ("level", "classes"),
    [
        (1, {0: "CCAT", 1: "ECAT", 3: "CCAT", 4: "CCAT"}),
        # C15 and C31 are two; CCAT alone is none
        (2, {0: "C15", 1: "E11"}),
    ],
)
def test_rcv1_has_the_classes_of_a_level_of_its_hierarchy(tmp_path, level, classes):
    write_rcv1(tmp_path, N_ROWS)
    wanted = [(FIRST_ID + n, classes[n % 6]) for n, terms in enumerate(rcv1_rows(N_ROWS)) if n % 6 in classes and terms]
    for name, own in (("vectors", {"id_column": "label"}), ("tokens", {})):
        report, data = rcv1(tmp_path, name, label_level=level, **own)
        found = sorted(
            (int(row_id), data.meta.classes[code])
            for index in range(len(data))
            for row_id, code in zip(data.origins.read(index).ids.texts(), data.read(index).y.tolist(), strict=True)
        )
        assert found == wanted
        assert report.dropped == open_dataset(report.paths[0]).meta.source["rows"]["dropped"]
        assert report.dropped["several"] == N_ROWS // 6 * (1 if level == 1 else 2)
        assert report.dropped["unknown"] == N_ROWS // 6 * (1 if level == 1 else 2)
        assert sum(report.dropped.values()) + report.rows == N_ROWS
        assert data.meta.source["rows"]["label_level"] == level
    assert "40 with several labels" in report.notices[-1] or level == 2


def test_rcv1_keeps_sets_of_topics(tmp_path):
    write_rcv1(tmp_path, N_ROWS)
    report, data = rcv1(tmp_path, "tokens", multilabel=True, label_map=None, drop="unknown")
    assert data.meta.target == "multilabel"
    assert data.meta.classes == sorted({topic for topics in TOPICS for topic in topics})
    assert report.dropped == {"unknown": N_ROWS // 6}


def test_tokens_are_words_like_those_of_lines(tmp_path):
    write_rcv1(tmp_path, 66)
    words = [" ".join(f"w{term}" for term in terms) for terms in rcv1_rows(66)]
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in words))
    tokens = tmp_path / "lyrl2004_tokens_train.dat"
    tokens.write_text("\ufeff" + tokens.read_text(), encoding="utf-8")
    for name, source in (("marks", "lyrl2004_tokens_train.dat"), ("lines", "lines.txt")):
        ingest(tmp_path / source, tmp_path / name, format="text", n_features=512, unlabelled=True)
    assert np.array_equal(read_all(tmp_path / "marks")[0], read_all(tmp_path / "lines")[0])


@pytest.mark.parametrize("label_map", [None, "structure.rdf.u8"])
@pytest.mark.parametrize(
    ("level", "classes"),
    [(1, ["Arts", "Business"]), (2, ["Arts/Animation", "Arts/Movies", "Business/Food_and_Related_Products"])],
)
def test_pages_of_the_directory_have_the_labels_of_a_level(tmp_path, level, classes, label_map):
    write_directory(tmp_path)
    report = ingest(
        tmp_path / "content.rdf.u8.gz", tmp_path / "d", label_level=level,
        label_map=label_map and tmp_path / label_map, drop="unknown", id_column="about", n_features=1024,
        shuffle=False,
    )  # fmt: skip
    data = open_dataset(tmp_path / "d")
    assert data.meta.classes == classes
    assert report.dropped == {"unknown": 0 if level == 1 else 50}
    assert data.origins.read(0).ids.texts()[1] == "http://e1.example.org/?a=1&b=2"
    # the words of title and description, entities of XML replaced
    alike = tmp_path / "alike.txt"
    alike.write_text("Café 0 film0 <b> trade0\nCafé 1 film1 <b> trade1\n", encoding="utf-8")
    ingest(alike, tmp_path / "alike", format="text", unlabelled=True, n_features=1024)
    assert np.array_equal(read_all(tmp_path / "d")[0][:2], read_all(tmp_path / "alike")[0])


@pytest.mark.parametrize("name", ["alpha_train.dat", "alpha_train.dat.bz2"])
def test_rows_of_the_pascal_challenge_have_their_labels_by_position(tmp_path, name):
    x, y = write_alpha(tmp_path)
    read = distls.CsvOptions(separator="space", header=False, labels=tmp_path / "alpha_train.lab")
    ingest(tmp_path / name, tmp_path / "d", read=read, shuffle=False)
    found, codes = read_all(tmp_path / "d")
    assert np.array_equal(found, x.astype(np.float32))
    assert np.array_equal(np.array(open_dataset(tmp_path / "d").meta.classes)[codes], y)


def test_batches_of_cifar_are_pictures_with_their_classes(tmp_path):
    x, y = write_cifar(tmp_path)
    batches = [tmp_path / f"data_batch_{number}.bin" for number in (1, 2)]
    ingest(batches, tmp_path / "d", shuffle=False)
    found, codes = read_all(tmp_path / "d")
    assert np.array_equal(found, x)
    assert np.array_equal(np.array(open_dataset(tmp_path / "d").meta.classes)[codes], y)
    ingest(tmp_path / "train.bin", tmp_path / "hundred", shuffle=False)
    assert np.array_equal(read_all(tmp_path / "hundred")[0], x)
    assert open_dataset(tmp_path / "hundred").meta.classes == list(range(60))
    batches[0].write_bytes(batches[0].read_bytes()[:-1])
    refuses(BadInputError, "its 92,189 bytes are no pictures of CIFAR, 3,072 bytes", ingest, batches, tmp_path / "cut")


@pytest.mark.slow
def test_a_model_of_real_files_is_evaluated_on_real_files(tmp_path):
    write_rcv1(tmp_path, N_ROWS)
    options = {**RCV1, **{key: tmp_path / RCV1[key] for key in ("labels", "label_map")}, "label_level": 1}
    vectors = tmp_path / "lyrl2004_vectors_train.dat"
    trained = distls.train(
        vectors, tmp_path / "run", test=vectors, test_labels=options["labels"], method="sdca", id_column="label",
        keep_dataset=False, notify=lambda notice: None, **options,
    )  # fmt: skip
    assert trained.evaluation.n_rows == 145
    options["drop"] = "several,unknown"
    again = distls.evaluate(tmp_path / "run", vectors, notify=lambda notice: None, **options)
    assert again.n_rows == 160


ROUGH = {
    "a type": ('<!DOCTYPE a [<!ENTITY b "c">]><RDF></RDF>', "a document type, which may declare entities, is refused"),
    "an entity": (
        '<RDF><ExternalPage about="u"><d:Title>&b;</d:Title></ExternalPage></RDF>',
        ":2: not well-formed XML .undefined entity",
    ),
    "an end": ('<RDF><ExternalPage about="u">', "not well-formed XML .no element found.; is it complete"),
    "a byte": ("<RDF><a>\udcff</a></RDF>", "iconv -c -f utf-8 -t utf-8 removes"),
    "no topic": ('<RDF><ExternalPage about="u"/></RDF>', ":2: the document has no label; --labels FILE may"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUGH)
def test_xml_that_is_not_that_of_the_directory_is_refused(tmp_path, name):
    text, message = ROUGH[name]
    source = tmp_path / "content.rdf"
    source.write_bytes(f'<?xml version="1.0"?>\n{text}'.encode(errors="surrogateescape"))
    refuses(BadInputError, message, ingest, source, tmp_path / "d", format="text")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("filling", [b"<!--" + b"x" * 2**16, b"<a>" * 2**14, b'<a b="c"/>' * 2**13])
def test_xml_that_never_ends_takes_bounded_memory(tmp_path, monkeypatch, filling):
    import distls.workers.ingestion.public_sets.marked_documents as marked

    monkeypatch.setattr(marked, "MAX_LINE", 2**15)
    monkeypatch.setattr(marked, "_READ_BYTES", 2**12)
    (tmp_path / "a.rdf").write_bytes(b"<RDF><Topic>" + filling)
    refuses(BadInputError, "an element of more than 0 MiB", ingest, tmp_path / "a.rdf", tmp_path / "d", format="text")


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        (".I 1\n.W\na\n.I\n", {"unlabelled": True}, BadInputError, "a.dat:4: expected .I ID"),
        (".I 1\n.W\na\n", {}, BadInputError, "a.dat:1: the document has no label; --labels FILE may have it"),
        (".I 1\n.W\n\udcff\n", {"unlabelled": True}, BadInputError, '"1" is not UTF-8'),
        (".I 1\n.W\na\n", {"text_column": "b"}, ParameterError, "documents of .* are between marks"),
    ],
)
def test_tokens_that_are_none_are_refused(tmp_path, text, options, error, message):
    (tmp_path / "a.dat").write_bytes(text.encode(errors="surrogateescape"))
    refuses(error, message, ingest, tmp_path / "a.dat", tmp_path / "d", **options)
