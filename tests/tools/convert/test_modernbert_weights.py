"""ModernBERT's weights from and to transformers, strict both ways."""

import json
import re

import numpy as np
import pytest

from bert_jax.tools.cli import convert
from bert_jax.training.workdir import open_workdir
from tests.tools.convert.conftest import VOCABULARY
from tests.tools.convert.hf_folders import edit, edit_config

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors.numpy")

SIZES = {
    "vocab_size": len(VOCABULARY.split("\n")),
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "local_attention": 8,
}
WORDS = "modernbert/embeddings/word_embeddings/embedding"


@pytest.fixture
def save(tmp_path):
    """Returns a function (class, changes) -> a folder with random weights, and the model."""

    def save(name="ModernBertForMaskedLM", **changes):
        torch.manual_seed(0)
        tokens = dict.fromkeys(f"{n}_token_id" for n in ("bos", "eos", "cls", "sep"))
        config = transformers.ModernBertConfig(**SIZES | tokens | {"pad_token_id": 0} | changes)
        model = getattr(transformers, name)(config)
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
        folder = tmp_path / "theirs"
        model.save_pretrained(folder)
        (folder / "vocab.txt").write_text(VOCABULARY)
        return folder, model.eval()

    return save


def from_hf(folder, *words):
    out = folder.parent / "out"
    convert.main(["convert", "from_hf", str(folder), str(out), *words])
    return open_workdir(str(out)), json.loads((out / "certificate.json").read_text())


@pytest.mark.parametrize("name", ["ModernBertForMaskedLM", "ModernBertModel"])
def test_an_import_gives_the_outputs_of_transformers(save, name):
    folder, model = save(name, layer_types=None, global_attn_every_n_layers=2)
    run, certificate = from_hf(folder)
    expected = {"hidden states"} | ({"masked-LM logits"} if "Masked" in name else set())
    assert set(certificate["comparison"]["largest_difference"]) == expected
    assert max(certificate["comparison"]["largest_difference"].values()) < 1e-5
    assert certificate["parameters"] == sum(p.numel() for p in model.parameters())
    fields = run.config.model
    assert (fields.name, fields.attention_window, fields.global_every) == ("modernbert", 4, 2)
    assert (fields.rotary_base, fields.window_rotary_base) == (160_000.0, 10_000.0)


def test_an_export_is_read_back_by_transformers_and_here(save, tmp_path):
    folder, model = save()
    run, _ = from_hf(folder, "--nocomparison")
    convert.main(["convert", "to_hf", str(tmp_path / "out"), str(tmp_path / "again")])
    certificate = json.loads((tmp_path / "again" / "certificate.json").read_text())
    assert certificate["class"] == "ModernBertForMaskedLM"
    assert max(certificate["comparison"]["largest_difference"].values()) < 1e-5
    again, loading = transformers.ModernBertForMaskedLM.from_pretrained(
        tmp_path / "again", output_loading_info=True
    )
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    assert again.config.layer_types == model.config.layer_types
    assert again.config.rope_parameters == model.config.rope_parameters
    theirs = dict(model.named_parameters())
    for name, parameter in again.named_parameters():
        assert torch.equal(parameter, theirs[name]), name
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    encoded = tokenizer("the cat")
    assert "token_type_ids" not in encoded
    ids = run.tokenizer.encode("the cat")
    assert encoded["input_ids"] == [run.tokenizer.cls_id, *ids, run.tokenizer.sep_id]
    (tmp_path / "out").rename(tmp_path / "first")
    back, _ = from_hf(tmp_path / "again", "--nocomparison")
    for path, array in back.params.items():
        np.testing.assert_array_equal(array, run.params[path])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm_bias": True}, "has norm_bias=True: only False is supported."),
        ({"hidden_activation": "relu"}, "has hidden_activation='relu': only 'gelu' is supported."),
        ({"decoder_bias": False}, "has decoder_bias=False: only True is supported."),
        (
            {"layer_types": ["sliding_attention", *3 * ["full_attention"]]},
            "only full_attention in the first and then in every n-th layer is supported.",
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "has rope_type='yarn': only 'default' is supported.",
        ),
        (
            {"architectures": ["ModernBertForSequenceClassification"]},
            "only ModernBertModel and ModernBertForMaskedLM are supported.",
        ),
        ({"hidden_size": None}, "lacks hidden_size."),
    ],
)
def test_what_this_package_lacks_is_refused(save, change, message):
    folder, _ = save()
    edit_config(folder, **change)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        from_hf(folder)
    assert "\n" not in str(error.value) and not (folder.parent / "out").exists()


def test_every_tensor_must_be_known_and_there(save):
    folder, _ = save()
    edit(folder, lambda arrays: arrays.update(extra=np.zeros(3, "f4")))
    with pytest.raises(ValueError, match="extra"):
        from_hf(folder)
    edit(folder, lambda arrays: (arrays.pop("extra"), arrays.pop("model.layers.1.mlp.Wi.weight")))
    with pytest.raises(ValueError, match=r"model\.layers\.1\.mlp\.Wi\.weight"):
        from_hf(folder)
    with pytest.raises(ValueError, match="is a ModernBERT, whose activation is gelu: leave out"):
        from_hf(folder, "--activation=gelu_tanh")


def test_what_transformers_lacks_is_not_exported(save, tmp_path):
    folder, _ = save()
    from_hf(folder, "--nocomparison")
    path = tmp_path / "out" / "config.json"
    values = json.loads(path.read_text())
    values["model"]["norm"] = "rms_norm"
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="transformers' ModernBERT has no config.model.norm='rms"):
        convert.main(["convert", "to_hf", str(tmp_path / "out"), str(tmp_path / "again")])
