"""GPT's weights from and to transformers and from the released files, strict both ways."""

import json
import re

import numpy as np
import pytest

from bert_jax.formats import format_of
from bert_jax.formats.names import gpt as gpt_names
from bert_jax.tools.cli import convert
from bert_jax.training.workdir import open_model, open_workdir
from tests.tools.convert.hf_folders import edit, edit_config

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors.numpy")
pytest.importorskip("ftfy")
pytest.importorskip("spacy")

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = ["<unk>", *LETTERS, *(f"{c}</w>" for c in LETTERS), "th", "the</w>"]
MERGES = ["t h", "th e</w>"]
SIZES = {"n_positions": 40, "n_embd": 16, "n_layer": 2, "n_head": 2}
WORDS = "gpt/embeddings/word_embeddings/embedding"
SPECIAL = ["_start_", "_delimiter_", "_classify_"]
# Of a layer, in the order of the released files; {} is the hidden size, {x} so many times it.
RELEASED = (
    ("c_attn/w", (1, 1, 3)),
    ("c_attn/b", (3,)),
    ("c_proj/w", (1, 1, 1)),
    ("c_proj/b", (1,)),
    ("ln_1/g", (1,)),
    ("ln_1/b", (1,)),
    ("c_fc/w", (1, 1, 4)),
    ("c_fc/b", (4,)),
    ("c_proj/w", (1, 4, 1)),
    ("c_proj/b", (1,)),
    ("ln_2/g", (1,)),
    ("ln_2/b", (1,)),
)


def write_vocabulary(folder, pieces, merges):
    (folder / pieces).write_text(json.dumps({p: i for i, p in enumerate(PIECES)}))
    (folder / merges).write_text("\n".join(["#version: 0.2", *MERGES, ""]))


@pytest.fixture
def save(tmp_path):
    """Returns a function (class, changes) -> a folder with random weights, and the model."""

    def save(name="OpenAIGPTLMHeadModel", **changes):
        torch.manual_seed(0)
        config = transformers.OpenAIGPTConfig(vocab_size=len(PIECES), **SIZES | changes)
        model = getattr(transformers, name)(config)
        for parameter in model.parameters():  # every bias and every scale is random
            parameter.data += 0.1 * torch.randn_like(parameter)
        folder = tmp_path / "theirs"
        model.save_pretrained(folder)
        write_vocabulary(folder, "vocab.json", "merges.txt")
        return folder, model.eval()

    return save


def from_hf(folder, *words, command="from_hf"):
    out = folder.parent / "out"
    convert.main(["convert", command, str(folder), str(out), *words])
    return open_workdir(str(out)), json.loads((out / "certificate.json").read_text())


@pytest.mark.parametrize("name", ["OpenAIGPTLMHeadModel", "OpenAIGPTModel"])
def test_every_tensor_is_where_the_released_program_has_it(save, name):
    """Names, the split of query, key and value, and no transposition; from the model itself."""
    folder, model = save(name)
    run, _ = from_hf(folder, "--nocomparison")
    model = getattr(model, "transformer", model)
    params, rows = dict(run.params), len(PIECES)
    np.testing.assert_array_equal(params.pop(WORDS)[:rows], model.tokens_embed.weight.detach())
    positions = params.pop("gpt/embeddings/position_embeddings/embedding")
    np.testing.assert_array_equal(positions, model.positions_embed.weight.detach())
    for i, block in enumerate(model.h):
        path = f"gpt/encoder/layer_{i}"
        for number, part in enumerate(("query", "key", "value")):
            columns = slice(16 * number, 16 * (number + 1))
            for leaf, tensor in (("kernel", "weight"), ("bias", "bias")):
                expected = getattr(block.attn.c_attn, tensor).detach().numpy()[..., columns]
                found = params.pop(f"{path}/attention/{part}/{leaf}")
                np.testing.assert_array_equal(found, expected)
        for ours, module in (
            ("attention/output", block.attn.c_proj),
            ("intermediate", block.mlp.c_fc),
            ("output", block.mlp.c_proj),
            ("attention/layer_norm", block.ln_1),
            ("layer_norm", block.ln_2),
        ):
            leaf = "scale" if ours.endswith("norm") else "kernel"
            found = params.pop(f"{path}/{ours}/{leaf}")
            np.testing.assert_array_equal(found, module.weight.detach())
            np.testing.assert_array_equal(params.pop(f"{path}/{ours}/bias"), module.bias.detach())
    assert not params


def test_an_import_gives_the_outputs_of_transformers(save):
    folder, _ = save()
    _, certificate = from_hf(folder)
    comparison = certificate["comparison"]
    assert comparison["with"].startswith("transformers ")
    assert set(comparison["largest_difference"]) == {"hidden states", "next-word logits"}
    assert max(comparison["largest_difference"].values()) < 1e-5


def test_the_special_tokens_get_new_rows_and_the_certificate_names_them(save, capsys):
    folder, model = save()
    run, certificate = from_hf(folder, "--nocomparison")
    rows = len(PIECES)
    assert run.config.model.vocab_size == rows + 3 == len(run.tokenizer.pieces)
    assert list(run.tokenizer.pieces[rows:]) == SPECIAL
    words = run.params[WORDS]
    assert words.shape == (rows + 3, 16)
    new = words[rows:]
    assert 0.005 < new.std() < 0.04 and not (new == 0).any()
    assert certificate["tensors"]["fresh_rows"] == {f"{WORDS}[{rows}:]": SPECIAL}
    assert certificate["fresh_parameters"] == 3 * 16
    assert certificate["parameters"] == sum(p.numel() for p in model.parameters())
    out = capsys.readouterr().out
    assert f"random      {WORDS}[{rows}:]: _start_, _delimiter_, _classify_\n" in out
    # A run that starts from the folder itself has the same parameters.
    params = open_model(str(folder)).params
    assert params.keys() == run.params.keys()
    for path, array in params.items():
        np.testing.assert_array_equal(array, run.params[path])


def test_an_export_is_read_back_by_transformers(save, tmp_path):
    """The folder has the special tokens as pieces, so that a second import adds no rows."""
    folder, _ = save()
    run, _ = from_hf(folder, "--nocomparison")
    convert.main(["convert", "to_hf", str(tmp_path / "out"), str(tmp_path / "again")])
    certificate = json.loads((tmp_path / "again" / "certificate.json").read_text())
    assert certificate["class"] == "OpenAIGPTLMHeadModel"
    assert certificate["tensors"]["random"] == [f"{WORDS}[{len(PIECES)}:]"]
    assert max(certificate["comparison"]["largest_difference"].values()) < 1e-5
    model, loading = transformers.OpenAIGPTLMHeadModel.from_pretrained(
        tmp_path / "again", output_loading_info=True
    )
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    config = model.config
    assert (config.n_embd, config.n_layer, config.n_head, config.n_positions) == (16, 2, 2, 40)
    np.testing.assert_array_equal(model.transformer.tokens_embed.weight.detach(), run.params[WORDS])
    (tmp_path / "out").rename(tmp_path / "first")
    again, certificate = from_hf(tmp_path / "again", "--nocomparison")
    assert certificate["tensors"]["fresh_rows"] == {}
    assert again.tokenizer.pieces == run.tokenizer.pieces
    assert again.tokenizer.encode("the cat") == run.tokenizer.encode("the cat")
    for path, array in again.params.items():
        np.testing.assert_array_equal(array, run.params[path])


def test_names_of_other_versions_are_known(save):
    """Without "transformer."; the causal mask, the numbers of positions and the softmax's table."""
    folder, _ = save()
    plain, _ = from_hf(folder, "--nocomparison")
    (folder.parent / "out").rename(folder.parent / "first")

    def to_old(arrays):
        for name in list(arrays):
            if name.startswith("transformer."):
                arrays[name.removeprefix("transformer.")] = arrays.pop(name)
        for i in range(2):
            arrays[f"h.{i}.attn.bias"] = np.tri(40, dtype="f4")[None, None]
        arrays["lm_head.weight"] = arrays["tokens_embed.weight"].copy()
        arrays["position_ids"] = np.arange(40)

    edit(folder, to_old)
    run, certificate = from_hf(folder, "--nocomparison")
    for path, array in plain.params.items():
        np.testing.assert_array_equal(run.params[path], array)
    assert certificate["tensors"]["known_non_parameters"] == {
        "h.0.attn.bias": "the causal mask",
        "h.1.attn.bias": "the causal mask",
        "lm_head.weight": "the table of word embeddings once more",
        "position_ids": "the numbers 0, 1, 2 ...",
    }


def drop(name):
    return lambda folder: edit(folder, lambda arrays: arrays.pop(name))


def put(name, array):
    return lambda folder: edit(folder, lambda arrays: arrays.update({name: array}))


def configure(**changes):
    return lambda folder: edit_config(folder, **changes)


BROKEN = {
    "missing tensor": (
        drop("transformer.h.1.attn.c_attn.bias"),
        r"\+ transformer.h.1.attn.c_attn.bias: \[48\]",
    ),
    "another tensor": (put("transformer.x", np.ones(3, "f4")), r"- transformer.x: \[3\]"),
    "another shape": (
        put("transformer.h.0.attn.c_attn.weight", np.ones((16, 47), "f4")),
        r"- transformer.h.0.attn.c_attn.weight: \[16, 47\]; \+ .*c_attn.weight: \[16, 48\]",
    ),
    "NaN": (
        put("transformer.h.0.attn.c_attn.bias", np.full(48, np.nan, "f4")),
        r"theirs: transformer.h.0.attn.c_attn.bias has 48 NaN .* of 48",
    ),
    "another softmax": (
        put("lm_head.weight", np.ones((len(PIECES), 16), "f4")),
        "lm_head.weight is expected to be the table of word embeddings once more",
    ),
    "another mask": (
        put("transformer.h.0.attn.bias", np.ones((1, 1, 40, 40), "f4")),
        "attn.bias is expected to be the causal mask",
    ),
    "activation": (configure(afn="relu"), "afn='relu': only 'gelu' is supported"),
    "two rates": (configure(embd_pdrop=0.2), "embd_pdrop=0.2: only one rate for both"),
    "no size": (configure(n_embd=None), "config.json lacks n_embd"),
    "another model": (configure(model_type="gpt2"), "'gpt2': only 'bert', 'openai-gpt', 'modern"),
    "vocabulary of another size": (configure(vocab_size=70), "58 pieces and the model 73"),
}


@pytest.mark.parametrize("broken, message", BROKEN.values(), ids=list(BROKEN))
def test_a_folder_that_cannot_be_imported(save, broken, message):
    folder, _ = save()
    broken(folder)
    with pytest.raises(ValueError, match=message) as error:
        from_hf(folder)
    assert "\n" not in str(error.value) and not (folder.parent / "out").exists()


def test_another_activation_cannot_be_chosen(save):
    folder, _ = save()
    with pytest.raises(ValueError, match="is a GPT, whose activation is gelu_tanh: leave out"):
        from_hf(folder, "--activation=gelu")


NOT_EXPORTED = [
    ("norm_place", "pre", "no config.model.norm_place='pre', only 'post'"),
    ("lm_head", "transform", "no config.model.lm_head='transform', only 'tied'"),
    ("activation", "gelu", "no config.model.activation='gelu', only 'gelu_tanh'"),
    ("intermediate_size", 48, r"no config.model.intermediate_size=48, only 4 \* hidden_size = 64"),
]


def test_what_transformers_lacks_is_not_exported(save, tmp_path):
    folder, _ = save()
    from_hf(folder, "--nocomparison")
    path = tmp_path / "out" / "config.json"
    before = json.loads(path.read_text())
    for field, value, message in NOT_EXPORTED:
        path.write_text(json.dumps(before | {"model": before["model"] | {field: value}}))
        with pytest.raises(ValueError, match=f"transformers' GPT has {message}"):
            convert.main(["convert", "to_hf", str(tmp_path / "out"), str(tmp_path / "again")])
    path.write_text(json.dumps(before | {"task": "pretraining"}))
    message = "no class for a GPT with config.task='pretraining', only for causal_lm"
    with pytest.raises(ValueError, match=message):
        convert.main(["convert", "to_hf", str(tmp_path / "out"), str(tmp_path / "again")])
    assert not (tmp_path / "again").exists()


# ------------------------------------------------------------------ the released files


@pytest.fixture
def released(tmp_path):
    """A folder as it was released, of a small model: all tensors flat, in ten parts."""
    rng = np.random.default_rng(0)
    shapes = [(40, 128), (len(PIECES), 128)]
    for _ in range(2):
        shapes += [
            tuple(1 if name.endswith("/w") and axis == 0 else 128 * times for axis, times in n)
            for name, n in ((name, list(enumerate(times))) for name, times in RELEASED)
        ]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    folder = tmp_path / "released"
    folder.mkdir()
    flat = np.concatenate([array.ravel() for array in arrays])
    for number, part in enumerate(np.array_split(flat, 10)):
        np.save(folder / f"params_{number}.npy", part)
    (folder / "params_shapes.json").write_text(json.dumps(shapes))
    write_vocabulary(folder, "encoder_bpe_40000.json", "vocab_40000.bpe")
    return folder, arrays


def test_the_shapes_are_those_of_the_released_file(shared_data):
    """With the published sizes, the order of our names gives the published shapes."""
    path = shared_data / "checkpoints" / "gpt1" / "params_shapes.json"
    shapes = [tuple(shape) for shape in json.loads(path.read_text())]
    names = gpt_names.released_names(12)
    assert len(names) == len(shapes) == 146
    expected = [(512, 768), (40478, 768)]
    for _ in range(12):
        for name, times in RELEASED:
            width = name.endswith("/w")
            expected.append(tuple(768 * t if i or not width else 1 for i, t in enumerate(times)))
    assert shapes == expected
    of_layer = [re.sub("^h0/((attn|mlp)/)?", "", name) for name in names[2:14]]
    assert of_layer == [name for name, _ in RELEASED]


def test_the_released_files_are_imported(released):
    folder, arrays = released
    assert format_of(str(folder)) == "openai"
    run, certificate = from_hf(folder, command="from_openai")
    assert certificate["format"] == "openai/finetune-transformer-lm"
    assert max(certificate["comparison"]["largest_difference"].values()) < 1e-3
    assert (run.config.model.num_heads, run.config.model.num_layers) == (2, 2)
    params, rows = run.params, len(PIECES)
    np.testing.assert_array_equal(params["gpt/embeddings/position_embeddings/embedding"], arrays[0])
    np.testing.assert_array_equal(params[WORDS][:rows], arrays[1])
    assert certificate["tensors"]["fresh_rows"] == {f"{WORDS}[{rows}:]": SPECIAL}
    for i in range(2):
        path, of_layer = f"gpt/encoder/layer_{i}", arrays[2 + 12 * i : 14 + 12 * i]
        query, key, value = np.split(of_layer[0][0], 3, axis=1)
        np.testing.assert_array_equal(params[f"{path}/attention/query/kernel"], query)
        np.testing.assert_array_equal(params[f"{path}/attention/key/kernel"], key)
        np.testing.assert_array_equal(params[f"{path}/attention/value/kernel"], value)
        np.testing.assert_array_equal(params[f"{path}/attention/key/bias"], of_layer[1][128:256])
        for ours, number in (
            ("attention/output/kernel", 2),
            ("attention/output/bias", 3),
            ("attention/layer_norm/scale", 4),
            ("attention/layer_norm/bias", 5),
            ("intermediate/kernel", 6),
            ("intermediate/bias", 7),
            ("output/kernel", 8),
            ("output/bias", 9),
            ("layer_norm/scale", 10),
            ("layer_norm/bias", 11),
        ):
            expected = of_layer[number][0] if of_layer[number].ndim == 3 else of_layer[number]
            np.testing.assert_array_equal(params[f"{path}/{ours}"], expected)


def rewrite(name, change):
    return lambda folder: np.save(folder / name, change(np.load(folder / name)))


RELEASED_BROKEN = {
    "missing part": (lambda f: (f / "params_3.npy").unlink(), "params_3.npy is missing"),
    "no shapes": (
        lambda f: (f / "params_shapes.json").write_text("[[1]]"),
        "has 1 shapes: the released model has two tables and 12 tensors for each layer",
    ),
    "no json": (lambda f: (f / "params_shapes.json").write_text("{"), "cannot be read"),
    "a short part": (rewrite("params_9.npy", lambda x: x[1:]), "numbers, and params_shapes.json"),
    "another form": (rewrite("params_0.npy", lambda x: x[None]), "it has the form float32"),
    "a pickle": (
        lambda f: np.save(f / "params_0.npy", np.array([{}]), allow_pickle=True),
        "params_0.npy cannot be read",
    ),
    "no vocabulary": (
        lambda f: (f / "encoder_bpe_40000.json").unlink(),
        "encoder_bpe_40000.json is missing",
    ),
}


@pytest.mark.parametrize("broken, message", RELEASED_BROKEN.values(), ids=list(RELEASED_BROKEN))
def test_released_files_that_cannot_be_imported(released, broken, message):
    folder, _ = released
    broken(folder)
    with pytest.raises(ValueError, match=message) as error:
        from_hf(folder, command="from_openai")
    assert "\n" not in str(error.value) and not (folder.parent / "out").exists()


def test_tensors_with_parts_are_not_exported_in_part():
    from bert_jax.formats.weight_table import export_params

    params = {"gpt/encoder/layer_0/attention/query/bias": np.ones(4, np.float32)}
    message = re.escape("stores transformer.h.0.attn.c_attn.bias as a whole, and of its parts only")
    with pytest.raises(ValueError, match=message):
        export_params(params, gpt_names.HUGGINGFACE, "Hugging Face")
