"""GPT's vocabulary of two files through whole runs: prepared data, pre-training, fine-tuning."""

import json
import pathlib
import random
import shutil

import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.config.store import parse
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import prepare
from bert_jax.data.init_from import resolve
from bert_jax.devices.trees import flatten, unflatten
from bert_jax.models import MODELS
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.tools.listeners.make import training_listener
from bert_jax.training.checkpoints import Checkpoints, open_chosen
from bert_jax.training.evaluate import evaluate
from bert_jax.training.initial import check_source, special_tokens
from bert_jax.training.state import TrainState
from bert_jax.training.train import train
from configs import classification, gpt, mini
from tests import tiny
from tests.inference.conftest import predict_file
from tests.training.labelled_files import FILLERS, SIGNS, write_texts
from tests.training.test_initial import start

TABLE = "gpt/embeddings/word_embeddings/embedding"
NEW = "with new, random embeddings of _start_, _delimiter_, _classify_"
SMALL = {
    "model.num_layers": 1,
    "model.pad_vocab_to_multiple_of": 4,
    "epochs": 0.0,
    "steps": 2,
    "global_batch_size": 8,
    "optimizer.warmup": "0",
    "log.every": "1",
    "eval.every": "0",
    "checkpoint.every": "0",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> pathlib.Path:
    """A folder with a vocabulary, a corpus and labelled texts."""
    pytest.importorskip("ftfy", reason="needs the extra gpt")
    pytest.importorskip("spacy", reason="needs the extra gpt")
    folder, rng = tmp_path_factory.mktemp("files"), random.Random(0)
    words, merges, pieces = {*FILLERS, *SIGNS, "saw"}, {}, {}
    for word in sorted(words):  # merged from the left
        parts = [*word[:-1], word[-1] + "</w>"]
        pieces |= dict.fromkeys(parts)
        while len(parts) > 1:
            merges[" ".join(parts[:2])] = None
            parts = [parts[0] + parts[1], *parts[2:]]
            pieces[parts[0]] = None
    ids = {piece: number for number, piece in enumerate(["<unk>", *pieces, ".</w>", ".", "\n</w>"])}
    (folder / "encoder_bpe_40000.json").write_text(json.dumps(ids))
    (folder / "vocab_40000.bpe").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    documents = (
        "\n".join(f"The {rng.choice(FILLERS)} saw a {rng.choice(SIGNS)}." for _ in range(4))
        for _ in range(40)
    )
    (folder / "corpus.txt").write_text("\n\n".join(documents))
    for name, count in (("train", 24), ("eval", 8)):
        write_texts(folder / f"{name}.tsv", rng, count)
    return folder


@pytest.fixture(scope="module")
def num_pieces(files) -> int:
    return len(json.loads((files / "encoder_bpe_40000.json").read_text())) + 3


def pretraining_config(files, num_pieces, config=None):
    config = parse(config or gpt.get_config("tiny"))
    own = {
        "model.vocab_size": num_pieces,
        "data.source": f"text:{files}/corpus.txt",
        "data.line_format": "sentences",
        "data.vocab": str(files),
        "data.num_processes": 1,
        "data.validation_share": 0.0,
    }
    return config.replace(tiny.make_overrides() | SMALL | tiny.rows_of(config, 16) | own)


@pytest.fixture(scope="module")
def pretrained(files, num_pieces, tmp_path_factory) -> str:
    workdir = str(tmp_path_factory.mktemp("pretrained"))
    train(pretraining_config(files, num_pieces), workdir, listener=training_listener())
    return workdir


def params_of(workdir):
    with open_chosen(workdir, store.load(workdir)) as (checkpoints, step):
        return flatten(checkpoints.read_params(step))


def finetuning_config(files, source, workdir):
    config = parse(classification.get_config())
    config = config.replace(tiny.make_overrides() | SMALL | tiny.rows_of(config, 16))
    config = config.replace(
        {
            "init_from": source,
            "data.train": f"{files}/train.tsv",
            "data.eval": f"{files}/eval.tsv",
            "data.bucket_lengths": (16,),
        }
    )
    return resolve(config.to_dict(), (), str(workdir))


def test_prepared_data_and_the_run_have_a_copy_in_one_file(pretrained, files):
    manifest = Manifest.load(f"{pretrained}/data")
    given, prepared = load_tokenizer(files, True), manifest.tokenizer()
    kept = load_tokenizer(f"{pretrained}/vocab.gpt", True)
    assert manifest.vocabulary_path == f"{pretrained}/data/vocab.gpt"
    assert given.fingerprint == prepared.fingerprint == kept.fingerprint
    manifest.verify()
    row = manifest.rows("train", 16).read(np.array([0]))["input_ids"][0]
    text = given.decode(row).removeprefix("_delimiter_ ")
    assert text.startswith(("the ", "_start_ ")) and " saw a " in text


def test_data_are_found_again_by_any_name_of_the_vocabulary(pretrained, files, num_pieces):
    config = pretraining_config(files, num_pieces)
    folder, lines = f"{pretrained}/data", []
    before = Manifest.load(folder).fingerprint
    for name in ("vocab_40000.bpe", "encoder_bpe_40000.json"):
        config = config.replace({"data.vocab": str(files / name)})
        assert prepare(config.data, folder, 1, lines.append).fingerprint == before
    config = config.replace({"data.vocab": f"{pretrained}/vocab.gpt"})
    assert prepare(config.data, folder, 1, lines.append).fingerprint == before


@pytest.mark.parametrize("segments", ["full_sentences", "pairs"])
def test_rows_of_a_corpus_end_with_classify(segments, files, num_pieces, tmp_path):
    config = pretraining_config(files, num_pieces)
    config = config.replace({"data.segments": segments, "metrics": ()})
    manifest = prepare(config.data, str(tmp_path), 1, [].append)
    tokenizer = manifest.tokenizer()
    rows = manifest.rows("train", 16)
    batch = rows.read(np.arange(len(rows)))
    for ids, examples in zip(batch["input_ids"], batch["example_ids"], strict=True):
        row = ids[examples > 0].tolist()
        assert (row[0], row[-1]) == (tokenizer.cls_id, tokenizer.end_id)
        assert tokenizer.end_id not in row[:-1]
        if segments == "pairs":
            assert row.count(tokenizer.sep_id) == 1


def test_running_text_may_have_a_byte_pair_vocabulary_of_its_own(files, num_pieces, tmp_path):
    config = pretraining_config(files, num_pieces).replace({"data.vocab": "train:bpe"})
    manifest = prepare(config.data, str(tmp_path), 1, [].append)
    tokenizer = manifest.tokenizer()
    rows = manifest.rows("train", 16)
    ids = rows.read(np.arange(len(rows)))["input_ids"]
    assert tokenizer.end_id == tokenizer.sep_id and (ids == tokenizer.sep_id).sum() >= 40
    assert tokenizer.decode(ids[0]).startswith("[SEP] the ")


def test_masked_words_refuse_a_vocabulary_without_a_mask(files, num_pieces, tmp_path):
    config = pretraining_config(files, num_pieces, mini.get_config())
    with pytest.raises(ValueError, match=r"has no \[MASK\], which masked tokens need"):
        train(config, str(tmp_path))


def test_fine_tuning_makes_new_embeddings_and_predicts(pretrained, files, tmp_path, capsys):
    workdir = tmp_path / "finetuned"
    config = finetuning_config(files, pretrained, workdir)
    assert config.data.vocab == f"{pretrained}/vocab.gpt"
    train(config, str(workdir), listener=training_listener())
    assert NEW in capsys.readouterr().out
    trained = store.load(str(workdir))
    results = evaluate(trained, str(workdir))
    assert results
    (tmp_path / "texts.tsv").write_text("text_a\tlabel\nThe gold moon.\tgood\n")
    predict_file(trained, str(workdir), str(tmp_path / "texts.tsv"), str(tmp_path / "out.jsonl"))
    assert "label" in json.loads((tmp_path / "out.jsonl").read_text())


def test_only_the_rows_of_the_special_tokens_are_new(pretrained):
    assert MODELS["gpt"].renews_special_tokens and not MODELS["bert"].renews_special_tokens
    config, source = store.load(pretrained), params_of(pretrained)
    tokenizer = load_tokenizer(f"{pretrained}/vocab.gpt", True)
    options = {"special_tokens": special_tokens(tokenizer)}
    initial, _, random_ones, lines = start(pretrained, config, **options, renew_special_tokens=True)
    assert lines[1:] == (NEW,)
    special = [tokenizer.cls_id, tokenizer.sep_id, tokenizer.end_id]
    expected = source.pop(TABLE).copy()
    expected[special] = random_ones[TABLE][special]
    np.testing.assert_array_equal(initial.pop(TABLE), expected)
    for path, array in initial.items():
        np.testing.assert_array_equal(array, source[path])
    kept, *_, lines = start(pretrained, config, **options)
    np.testing.assert_array_equal(kept[TABLE], params_of(pretrained)[TABLE])
    assert len(lines) == 1


def test_a_source_may_lack_the_special_tokens_and_nothing_else(
    pretrained, files, num_pieces, tmp_path
):
    config = store.load(pretrained)
    size = num_pieces - 3
    config = config.replace({"model.pad_vocab_to_multiple_of": 1, "model.vocab_size": size})
    params = params_of(pretrained)
    params[TABLE] = params[TABLE][:size]
    (tmp_path / "source").mkdir()
    store.save(config, source := str(tmp_path / "source"))
    shutil.copy(f"{pretrained}/vocab.gpt", source)
    checkpoints, zero = Checkpoints(source), np.int32(0)
    state = TrainState(zero, unflatten(params), {"count": zero}, zero)  # type: ignore
    checkpoints.save(state, meta={}, metrics={})
    checkpoints.close()

    config = finetuning_config(files, source, tmp_path / "new")
    assert config.model.vocab_size == num_pieces
    check_source(config)
    tokenizer = load_tokenizer(f"{source}/vocab.gpt", True)
    options = {"special_tokens": special_tokens(tokenizer)}
    initial, _, random_ones, lines = start(source, config, **options)
    assert lines[1:] == (NEW,)
    np.testing.assert_array_equal(initial[TABLE][:size], params_of(source)[TABLE])
    np.testing.assert_array_equal(initial[TABLE][size:], random_ones[TABLE][size:])

    config = config.replace({"model.vocab_size": num_pieces + 1})
    with pytest.raises(ValueError, match="do not fit the configuration"):
        check_source(config)
