"""Preparation with a lexicon: units of the rows, statistics, and what the data depend on."""

import dataclasses
import random

import numpy as np
import pytest

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus import dump
from bert_jax.data.corpus.prepare import prepare
from bert_jax.text.lexicon import PhraseMatcher, read_lexicon
from tests.data.corpus.corpora import WORDS, make_config, quiet, write_text


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


@pytest.fixture(scope="module")
def manifest(text, tmp_path_factory):
    return prepare(phrase_config(text), str(tmp_path_factory.mktemp("phrases")), 1, quiet)


def all_rows(manifest):
    return manifest.rows("train", 32).read(np.arange(manifest.num_rows("train", 32)))


def test_rows_have_their_units_and_statistics_count_them(manifest, text, tmp_path):
    """tests/text/test_lexicon.py says which units those of the matcher are."""
    tokenizer, batch = manifest.tokenizer(), all_rows(manifest)
    entries = read_lexicon(text / "lexicon.txt")
    matcher = PhraseMatcher(entries, tokenizer, weights={"month": 0.5, "place": 3.0})
    is_token = batch["example_ids"] > 0
    ids = batch["input_ids"][is_token]
    codes = matcher.match(ids)
    units = batch["mask_units"]
    assert units.dtype == np.int8 and not units[~is_token].any()
    assert units[is_token].tolist() == matcher.stored[codes].tolist()
    counts = matcher.count(ids, codes, None)
    by_class = {name: counts[f"phrases/{name}"] for name in ("", "month", "person", "place")}
    assert min(by_class.values()) > 50
    assert manifest.statistics("train", 32)["mask_units"] == {
        "units": counts["units"],
        "phrases": counts["phrases"],
        "phrases_by_class": by_class,
        "phrase_token_share": counts["phrase_tokens"] / counts["unit_tokens"],
    }
    found = {"phrases": len(entries), "repeated": 0, "with_unknown_words": 0}
    assert manifest.content["lexicon"] == found
    shown = f"{counts['phrases']:,} phrases (no class {by_class['']:,}, mo"
    assert shown in dump.summarize(manifest)
    # The rows are those of the same data without a lexicon.
    without = {"masking": "subword", "lexicon": "", "lexicon_weights": ()}
    plain = all_rows(prepare(phrase_config(text, **without), str(tmp_path), 1, quiet))
    assert batch.keys() == plain.keys() | {"mask_units"}
    for name, array in plain.items():
        np.testing.assert_array_equal(batch[name], array)


def test_static_statistics_have_the_shares_of_what_is_masked(text, tmp_path):
    config = phrase_config(text, mode="static", lexicon_weights=("place=0", "person=4"))
    manifest = prepare(config, str(tmp_path / "static"), 1)
    units = manifest.statistics("train", 32)["mask_units"]
    batch = all_rows(manifest)
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


def test_a_dump_shows_the_units(manifest):
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
