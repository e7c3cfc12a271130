"""Each key of transformers is followed, refused or irrelevant, as docs/checkpoints.md says."""

import dataclasses
import json
import re
import shutil

import pytest

from bert_jax.files.errors import UserError
from bert_jax.formats import hf_tokenizer_settings, open_checkpoint
from bert_jax.formats.sentence_transformers import ONLY, read_sentence_vectors
from tests.tools.convert.documented import PAGE
from tests.tools.convert.hf_folders import SIZES, edit_config

STATES = ("followed", "refused", "irrelevant")
CONFIGS = {"Bert": "BERT", "Electra": "BERT", "Roberta": "BERT", "XLMRoberta": "BERT"} | {
    "DistilBert": "DistilBERT",
    "ModernBert": "ModernBERT",
    "OpenAIGPT": "GPT",
}


def rows():
    """Returns {beginning of a row of the table: {state: its keys}}."""
    section = PAGE.read_text().split("### What is read of a folder")[1].split("\n### ")[0]
    lines = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("|")]
    return {
        cells[0].strip().replace("`", ""): {
            state: re.findall(r"`([^`.]+)`", cell)
            for state, cell in zip(STATES, cells[1:], strict=True)
        }
        for cells in lines[2:]
    }


ROWS = rows()


def states(*files: str) -> dict[str, str]:
    """Returns key -> state, of the rows that begin so."""
    found = {}
    for title, keys in ROWS.items():
        if title.startswith(files):
            found |= {key: state for state, names in keys.items() for key in names}
    return found


@pytest.mark.parametrize("family", CONFIGS)
def test_every_key_of_a_configuration_is_in_the_table(family):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{family}Config")(**SIZES[family], num_labels=3)
    missing = config.to_dict().keys() - states("config.json", CONFIGS[family])
    assert not missing


@pytest.mark.parametrize("name", ["BertTokenizer", "RobertaTokenizer", "XLMRobertaTokenizer"])
def test_every_key_of_a_tokenizer_is_in_the_table(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    getattr(transformers, name)().save_pretrained(tmp_path)
    known = states("tokenizer_config.json")
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert not config.keys() - known
    assert all(known[key] == "refused" for key in hf_tokenizer_settings.ONLY)
    assert all(known[key] == "followed" for key in hf_tokenizer_settings.SWITCHES)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    assert not content.keys() - states("tokenizer.json")


def test_every_key_of_sentence_transformers_is_in_the_table():
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules.transformer import Transformer
    from sentence_transformers.sentence_transformer.modules.pooling import Pooling
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    assert not set(Transformer.config_keys) - states("sentence_bert_config.json").keys()
    assert not {*Pooling.config_keys, *Pooling.config_key_renames} - states("1_Pooling").keys()
    sparse = {*SpladePooling.config_keys, *SpladePooling.config_key_renames}
    assert not sparse - states("1_SpladePooling").keys()
    assert ONLY.keys() < states("sentence_bert_config.json").keys()


# Key -> another value of BERT's config.json.
OTHER = {
    "model_type": "electra",
    "architectures": ["BertForTokenClassification"],
    "vocab_size": 64,
    "id2label": {"0": "x", "1": "y", "2": "z"},
    "label2id": {"x": 0, "y": 1, "z": 2},
    "num_labels": 4,
    "problem_type": "multi_label_classification",
    "hidden_act": "gelu_new",
    "tokenizer_class": "BertJapaneseTokenizer",
    "is_encoder_decoder": True,
    "is_decoder": True,
    "add_cross_attention": True,
    "position_embedding_type": "relative_key",
    "pruned_heads": {"0": [1]},
    "rope_scaling": {"type": "linear"},
    "quantization_config": {"bits": 8},
    "auto_map": {"AutoModel": "m.M"},
    "dtype": "bfloat16",
}
# Followed by other means than the configuration: tensors, or transformers' classes of other models.
BY_TENSORS = {"tie_word_embeddings", "pad_token_id", "embedding_size"}
BERT = states("config.json", "BERT")


def read(folder):
    """Returns what is known of a checkpoint, but its tensors; the message if it is refused."""
    try:
        checkpoint = open_checkpoint(str(folder))
    except UserError as error:
        return str(error)
    return dataclasses.replace(checkpoint, tensors={}, path="")


@pytest.fixture(scope="module")
def classifier(saved, tmp_path_factory):
    theirs, _ = saved("BertForSequenceClassification", "float32", json.dumps({"num_labels": 3}))
    folder = shutil.copytree(theirs, tmp_path_factory.mktemp("keys") / "theirs")
    edit_config(folder, id2label=None, label2id=None)
    return folder


@pytest.mark.parametrize("key", sorted(BERT.keys() - BY_TENSORS))
def test_what_a_key_of_config_json_does(classifier, tmp_path, key):
    path, before = classifier / "config.json", read(classifier)
    text = path.read_text()
    stored = json.loads(text).get(key)
    value = OTHER.get(key, stored + 1 if isinstance(stored, int | float) else "other")
    try:
        edit_config(classifier, **{key: value})
        found = read(classifier)
    finally:
        path.write_text(text)
    if BERT[key] == "refused":
        assert isinstance(found, str) and key in found
    else:
        assert (found != before) == (BERT[key] == "followed"), found


@pytest.mark.parametrize("key", states("sentence_bert_config.json"))
def test_what_a_key_of_sentence_bert_config_does(tmp_path, key):
    modules = [{"type": f"s.{kind}", "path": ""} for kind in ("Transformer", "Pooling")]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({key: 7}))
    found = read_sentence_vectors(str(tmp_path))
    assert bool(found.unknown) == (states("sentence_bert_config.json")[key] == "refused")
    assert not found.unknown or key in found.unknown
