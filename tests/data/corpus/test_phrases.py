"""Preparation with a lexicon: units of the rows, statistics, and what the data depend on."""

import dataclasses
import random
import re
from collections import Counter

import numpy as np
import pytest

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus import dump
from bert_jax.data.corpus.prepare import prepare
from bert_jax.text.tokenization import basic_tokens
from tests.data.corpus.corpora import WORDS, make_config, write_text


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Files of documents, and a lexicon: words and pairs of words of one or two syllables."""
    folder, rng = tmp_path_factory.mktemp("text"), random.Random(0)
    write_text(folder, 40)
    words = [*WORDS, *("".join(rng.choices(WORDS, k=2)) for _ in range(20))]
    phrases = {" ".join(rng.choices(words, k=rng.choice((1, 2, 2, 3)))) for _ in range(300)}
    kinds = ("", "\tperson", "\tplace", "\tmonth")
    (folder / "lexicon.txt").write_text(
        "".join(f"{phrase}{rng.choice(kinds)}\n" for phrase in sorted(phrases))
    )
    return folder


def phrase_config(text, **changes) -> DataConfig:
    values = {"masking": "phrase", "lexicon": str(text / "lexicon.txt"), "dupe_factor": 1}
    weights = ("place=3", "month=0.5")
    return make_config(text, **values | {"lexicon_weights": weights} | changes)


def units_by_hand(pieces: list[str], phrases: dict[str, str]) -> list[tuple[str, str, int]]:
    """(text, class or -, its first place) of the units of a segment, by trying every phrase."""
    words: list[tuple[str, int]] = []
    for place, piece in enumerate(pieces):
        if piece.startswith("##") and words:
            words[-1] = (words[-1][0] + piece[2:], words[-1][1])
        else:
            words.append((piece, place))
    units = []
    while words:
        sizes = range(min(len(words), 4), 0, -1)
        texts = [(" ".join(word for word, _ in words[:size]), size) for size in sizes]
        text, size = next(((t, s) for t, s in texts if t in phrases), texts[-1])
        units.append((text, phrases.get(text, "-"), words[0][1]))
        words = words[size:]
    return units


def test_rows_have_their_units_and_statistics_count_them(text, tmp_path):
    manifest = prepare(phrase_config(text), str(tmp_path / "phrases"), 1)
    plain = prepare(
        phrase_config(text, masking="subword", lexicon="", lexicon_weights=()),
        str(tmp_path / "plain"),
        1,
    )
    lines = [line.split("\t") for line in (text / "lexicon.txt").read_text().splitlines()]
    phrases = {phrase: "".join(kind) for phrase, *kind in lines}
    numbers = {"-": 1, "": 2, "person": 2, "month": 3, "place": 4}
    tokenizer, found = manifest.tokenizer(), {name: 0 for name in numbers}
    tokens = phrase_tokens = 0
    size = manifest.num_rows("train", 32)
    batch = manifest.rows("train", 32).read(np.arange(-1, size))
    assert batch["mask_units"].dtype == np.int8 and not batch["mask_units"][0].any()
    for ids, segments, is_token, units in zip(
        *(batch[name][1:] for name in ("input_ids", "token_type_ids", "example_ids", "mask_units")),
        strict=True,
    ):
        assert not units[is_token == 0].any()
        for segment in (0, 1):
            places = np.flatnonzero((segments == segment) & (is_token > 0))
            places = places[1 - segment : -1]  # without [CLS] and [SEP]
            pieces = [tokenizer.pieces[i] for i in ids[places]]
            tokens += len(pieces)
            expected = np.zeros(len(pieces), int)
            by_hand = units_by_hand(pieces, phrases)
            ends = [*(place for _, _, place in by_hand[1:]), len(pieces)]
            for (_, kind, place), end in zip(by_hand, ends, strict=True):
                cut = pieces[place].startswith("##")  # the rest of a word is no phrase
                kind = "-" if cut else kind
                is_of_a = cut and segment == 1  # it continues the last unit of A
                expected[place] = 0 if is_of_a else numbers[kind]
                found[kind] += not is_of_a
                phrase_tokens += (end - place) * (kind != "-")
            assert units[places].tolist() == expected.tolist()

    statistics = manifest.statistics("train", 32)["mask_units"]
    by_class = {name: count for name, count in found.items() if name != "-"}
    assert statistics == {
        "units": sum(found.values()),
        "phrases": sum(by_class.values()),
        "phrases_by_class": by_class,
        "phrase_token_share": phrase_tokens / tokens,
    }
    assert manifest.content["lexicon"] == {
        "phrases": len(lines),
        "repeated": 0,
        "with_unknown_words": 0,
    }
    assert min(found.values()) > 50
    assert f"{statistics['phrases']:,} phrases (no class {by_class['']:,}, mo" in dump.summarize(
        manifest
    )
    # The rows are those of the same data without a lexicon.
    without = plain.rows("train", 32).read(np.arange(-1, size))
    assert batch.keys() == without.keys() | {"mask_units"}
    for name, array in without.items():
        np.testing.assert_array_equal(batch[name], array)


def test_static_statistics_have_the_shares_of_what_is_masked(text, tmp_path):
    config = phrase_config(text, mode="static", lexicon_weights=("place=0", "person=4"))
    manifest = prepare(config, str(tmp_path / "static"), 1)
    units = manifest.statistics("train", 32)["mask_units"]
    batch = manifest.rows("train", 32).read(np.arange(manifest.num_rows("train", 32)))
    masked = batch["masked_lm_weights"].sum()
    special = (2 + (batch["token_type_ids"].max(axis=1) > 0)).sum()
    tokens = (batch["example_ids"] > 0).sum() - special
    assert units["masked_token_share"] == pytest.approx(masked / tokens)
    by_class = units["masked_phrase_share_by_class"]
    assert by_class["place"] == 0 and by_class["person"] > 1.5 * by_class["month"] > 0
    found = sum(by_class[name] * n for name, n in units["phrases_by_class"].items())
    assert units["masked_phrase_share"] == pytest.approx(found / units["phrases"])
    assert 0 < units["masked_phrase_token_share"] < 1
    assert "mask_units" not in batch and "of the phrases and" in dump.summarize(manifest)


def test_weights_of_dynamic_data_can_change_but_neither_classes_nor_phrases(text, tmp_path):
    (tmp_path / "lexicon.txt").write_bytes((text / "lexicon.txt").read_bytes())
    config = phrase_config(text, lexicon=str(tmp_path / "lexicon.txt"))
    folder = str(tmp_path / "data")
    first = prepare(config, folder, 1)
    other = dataclasses.replace(
        config,
        lexicon_weights=("month=9", "place=0"),
        mask_share=1.0,
        keep_share=0.0,
        random_share=0.0,
    )
    assert prepare(other, folder, 1).fingerprint == first.fingerprint
    assert first.weighted_classes == ("month", "place")
    for changes, message in (
        (
            {"lexicon_weights": ("place=3",)},
            "lexicon_classes: .'month', 'place'. there, .'place'. ",
        ),
        ({"masking": "subword", "lexicon": "", "lexicon_weights": ()}, "lexicon: lexicon.txt .SHA"),
    ):
        with pytest.raises(ValueError, match=message):
            prepare(dataclasses.replace(config, **changes), folder, 1)
    with open(tmp_path / "lexicon.txt", "a") as file:
        file.write("ba ba ba ba\n")
    with pytest.raises(
        ValueError, match=r"settings \(lexicon: lexicon.txt \(SHA-256 \w+\) there, l"
    ):
        prepare(config, folder, 1)


def test_shares_of_masks_are_settings_of_static_data_only(text, tmp_path):
    for mode in ("dynamic", "static"):
        config = make_config(
            text, mode=mode, dupe_factor=1, sequence_lengths=(32,), num_predictions=(6,)
        )
        folder = str(tmp_path / mode)
        manifest = prepare(config, folder, 1)
        assert "lexicon" not in manifest.content
        changed = dataclasses.replace(config, mask_share=0.0, keep_share=0.2, random_share=0.8)
        if mode == "dynamic":
            assert prepare(changed, folder, 1).fingerprint == manifest.fingerprint
        else:
            message = "keep_share: 0.1 there, 0.2 requested; mask_share: 0.8 there, 0.0 requested;"
            with pytest.raises(ValueError, match=message):
                prepare(changed, folder, 1)


def test_a_dump_shows_the_units(text, tmp_path):
    manifest = prepare(phrase_config(text), str(tmp_path), 1)
    rows = dump.examples(manifest, "train", 32)
    example = next(row for row in rows if {2, 3, 4} <= set(row["mask_units"]))
    shown = dump.describe(example, manifest.tokenizer(), manifest.weighted_classes)
    units = shown.splitlines()[-1]
    assert units.startswith("units: ") and units.count(" | ") + 1 == np.count_nonzero(
        example["mask_units"]
    )
    for number, kind in ((2, "phrase"), (3, "month"), (4, "place")):
        assert units.count(f"({kind})") == example["mask_units"].count(number)
    words = units.removeprefix("units: ").replace(" | ", " ")
    for kind in ("phrase", "month", "place"):
        words = words.replace(f" ({kind})", "")
    pieces = " ".join(p for p in example["tokens"] if p not in ("[CLS]", "[SEP]"))
    assert words.replace(" ", "") == pieces.replace(" ##", "").replace(" ", "").replace("##", "")


def test_a_lexicon_that_cannot_be_used_is_refused(text, tmp_path):
    folder, path = tmp_path / "data", tmp_path / "names.txt"
    config = phrase_config(text, lexicon=str(path), vocab="train:wordpiece", lexicon_weights=())
    for content, changes, message in (
        (None, {}, "The lexicon .*names.txt cannot be read: No such file"),
        ("ba co\tperson\n", {"lexicon_weights": ("persn=2",)}, "'persn', which no phrase in .*nam"),
        ("ba\n\u200b\n", {}, "names.txt, line 2: the phrase .* has no tokens: remove it."),
        ("ba co\tx\nBA CO\ty\n", {}, "names.txt: 'BA CO' has the class 'y' in line 2 and 'x' in"),
    ):
        if content is not None:
            path.write_text(content)
        with pytest.raises(ValueError, match=message):
            prepare(dataclasses.replace(config, **changes), str(folder), 1)
        assert not (folder / "unfinished").exists()


def test_names_in_novels_are_units_wherever_they_occur(shared_data, tmp_path):
    """Full sentences hold the text once, so that its names can be counted in the text itself."""
    novels = (shared_data / "text" / "eltec_eng_train.txt").read_bytes()[:1_500_000]
    text = novels[: novels.rindex(b"\n")].decode()
    (tmp_path / "novels.txt").write_text(text)
    titles = ("Mr", "Mrs", "Miss", "Lady", "Lord", "Captain", "Sir")
    found = Counter(re.findall(rf"\b({'|'.join(titles)})\.? ([A-Z][a-z]+)\b", text))
    names = [" ".join(name) for name, count in found.items() if count > 2]
    assert len(names) > 20
    dots = [name.replace(" ", ". ", 1) for name in names]
    lines = [f"{name}\tname" for name in [*names, *dots]] + ["lady", "of course"]
    (tmp_path / "lexicon.txt").write_text("\n".join(lines))
    config = phrase_config(
        tmp_path,
        source=f"text:{tmp_path}/novels.txt",
        line_format="paragraphs",
        vocab=str(shared_data / "vocab" / "bert-base-uncased" / "vocab.txt"),
        vocab_size=30_522,
        segments="full_sentences",
        lexicon_weights=("name=4",),
        validation_share=0.0,
        sequence_lengths=(128,),
        num_predictions=(20,),
    )
    units = prepare(config, str(tmp_path / "data"), 2).statistics("train", 128)["mask_units"]

    phrases = {tuple(basic_tokens(line.split("\t")[0], True)): "\t" in line for line in lines}
    words, expected, place = basic_tokens(text, True), Counter(), 0
    while place < len(words):
        sizes = (size for size in (4, 3, 2, 1) if tuple(words[place : place + size]) in phrases)
        size = next(sizes, 0)
        expected[phrases[tuple(words[place : place + size])] if size else "word"] += 1
        place += max(size, 1)
    # The end of a row cuts a few.
    by_class = units["phrases_by_class"]
    assert 0.98 * expected[True] < by_class["name"] <= expected[True]
    assert 0.98 * expected[False] < by_class[""] <= 1.02 * expected[False]
    assert units["units"] == pytest.approx(expected.total(), rel=0.001)
