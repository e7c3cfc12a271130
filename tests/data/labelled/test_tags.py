"""Tags of all schemes -> IOB2, against seqeval's reading of the entities."""

import random
from collections import Counter

import pytest

from bert_jax.data.labelled.tags import TagReader

ENTITIES = [("PER", 0, 1), ("PER", 2, 2), ("LOC", 4, 6), ("PER", 8, 8), ("PER", 9, 10)]
LENGTH = 12


def write(scheme):
    """Tags of ENTITIES in a scheme, by its definition."""
    tags = ["O"] * LENGTH
    for number, (type, first, last) in enumerate(ENTITIES):
        follows = (
            number and ENTITIES[number - 1][0] == type and ENTITIES[number - 1][2] == first - 1
        )
        for i in range(first, last + 1):
            match scheme:
                case "iob1":
                    prefix = "B" if i == first and follows else "I"
                case "iob2":
                    prefix = "B" if i == first else "I"
                case _:
                    begin, inside, end, single = scheme
                    prefix = begin if i == first else end if i == last else inside
                    prefix = single if first == last else prefix
            tags[i] = f"{prefix}-{type}"
    return tuple(tags)


def convert(*sentences, plain=False):
    counts = Counter()
    reader = TagReader(counts, plain)
    tags = [reader.read(s, len(s), lambda i: f"f, line {i + 1}") for s in sentences]
    reader.finish()
    return tags, +counts


IOB2 = write("iob2")


@pytest.mark.parametrize(
    "scheme, name",
    [
        ("iob1", "iob1_files"),
        ("iob2", "iob2_files"),
        ("BIES", "iobes_files"),
        ("BILU", "iobes_files"),
        ("BMES", "iobes_files"),
        ("BMEW", "iobes_files"),
    ],
)
def test_schemes_are_told_and_converted(scheme, name):
    tags = write(scheme)
    converted, counts = convert(tags)
    changed = sum(old != new for old, new in zip(tags, IOB2, strict=True))
    assert converted == [IOB2]
    assert counts == Counter({name: 1, "tags_converted": changed})


@pytest.mark.parametrize(
    "sentences, converted, counts",
    [
        # Sentences do not touch.
        (["I-P", "I-P B-P"], ["B-P", "B-P B-P"], {"iob1_files": 1, "tags_converted": 2}),
        (["O B-P O I-L"], ["O B-P O B-L"], {"mixed_scheme_files": 1, "tags_converted": 1}),
        # B before O; E after O; I alone neither begins nor ends.
        (["S-X B-X O E-X B-X E-X", "I-X"], ["B-X B-X O B-X B-X I-X", "B-X"],
         {"iobes_files": 1, "broken_entities": 4, "tags_converted": 4}),
        (["B I O"], ["B-_ I-_ O"], {"iob2_files": 1, "tags_converted": 2}),
    ],
)  # fmt: skip
def test_sentences_of_a_file(sentences, converted, counts):
    found = [tuple(tags.split()) for tags in converted]
    assert convert(*map(str.split, sentences)) == (found, counts)


def test_entities_are_those_that_seqeval_finds():
    get_entities = pytest.importorskip("seqeval.metrics.sequence_labeling").get_entities
    rng = random.Random(1)
    choices = ["O", *(f"{prefix}-{type}" for prefix in "BIES" for type in ("X", "Y-Z"))]
    for _ in range(100):
        tags = tuple(rng.choices(choices, k=rng.randrange(1, 9)))
        (converted,), _ = convert(tags)
        assert get_entities(list(converted)) == get_entities(list(tags)), tags
        assert convert(converted) == ([converted], {"iob2_files": 1})


@pytest.mark.parametrize("tag", ["NN", "", "B-", "b-PER", "X-PER", "I_PER", "o"])
def test_other_tags_are_errors(tag):
    with pytest.raises(ValueError, match=f"f, line 2: invalid tag '{tag}'"):
        convert(("O", tag))


@pytest.mark.parametrize("tag", ["B-PER|B-LOC", "I-ORG;O", "B-X B-Y"])
def test_tags_of_nested_entities_are_errors(tag):
    with pytest.raises(ValueError, match="f, line 2: .* are tags of nested entities"):
        convert(("O", tag))
