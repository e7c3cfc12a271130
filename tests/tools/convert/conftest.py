"""Folders of runs without training, and folders of other programs, with random weights."""

import functools
import json
import pathlib
import shutil
from collections.abc import Callable

import numpy as np
import pytest

SIZES = {
    "vocab_size": 64,
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# 57 entries.
VOCABULARY = "\n".join(
    [*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *LETTERS, *(f"##{c}" for c in LETTERS)]
)


@pytest.fixture
def random_params() -> Callable[..., dict]:
    """Returns a function that draws parameters by path; every bias and every scale is random."""
    from bert_jax.exchange.loaded import pretraining_shapes

    def make(config, **heads: tuple[int, ...]) -> dict:
        """`heads` are shapes of further parameters, "/" written as "__"."""
        leaves = pretraining_shapes(config.model)
        shapes = {name: leaf.shape for name, leaf in leaves.items()}
        if heads:
            shapes = {name: shape for name, shape in shapes.items() if name.startswith("bert/")}
            shapes |= {name.replace("__", "/"): shape for name, shape in heads.items()}
        rng = np.random.default_rng(0)
        return {
            name: (name.endswith("scale") + 0.1 * rng.standard_normal(shape)).astype(np.float32)
            for name, shape in shapes.items()
        }

    return make


@pytest.fixture
def make_workdir(tmp_path, random_params) -> Callable[..., pathlib.Path]:
    """Returns a function (**changes of the configuration, dots as __) -> folder of a run."""
    from bert_jax.config import store
    from bert_jax.config.encoders import BertConfig
    from bert_jax.devices.trees import unflatten
    from bert_jax.tasks import default_config
    from bert_jax.training.checkpoints import Checkpoints
    from bert_jax.training.state import TrainState
    from tests import tiny

    def make(vocabulary: str | bytes = VOCABULARY, heads=None, params=None, **changes):
        workdir = tmp_path / "run"
        workdir.mkdir()
        config = default_config(changes.pop("task", "pretraining"))
        model = changes.pop("model", BertConfig())
        values = {f"model.{name}": size for name, size in SIZES.items()}
        values |= {name.replace("__", "."): value for name, value in changes.items()}
        values |= tiny.rows_of(config, values["model.max_position_embeddings"])
        config = config.replace(values, model=model)
        store.save(config, str(workdir))
        if isinstance(vocabulary, str):
            (workdir / "vocab.txt").write_text(vocabulary, encoding="utf-8")
        else:
            (workdir / "vocab.model").write_bytes(vocabulary)
        if params is None:
            params = random_params(config, **(heads or {}))
        checkpoints = Checkpoints(str(workdir))
        zero = np.int32(0)
        state = TrainState(np.int32(7), unflatten(params), {"count": zero}, zero)  # type: ignore
        checkpoints.save(state, meta={}, metrics={})
        checkpoints.close()
        return workdir

    return make


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """Returns a function that saves a random model of transformers with its vocabulary, once."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tests.tools.convert.hf_folders import SIZES, write_byte_level, write_gpt_vocabulary

    @functools.cache
    def save(name, dtype, changes):
        torch.manual_seed(0)
        family = next(family for family in SIZES if name.startswith(family))
        config = getattr(transformers, f"{family}Config")(**SIZES[family] | json.loads(changes))
        model = getattr(transformers, name)(config)
        for parameter in model.parameters():  # every bias and every scale is random
            parameter.data += 0.1 * torch.randn_like(parameter)
        folder = tmp_path_factory.mktemp("saved")
        model.to(getattr(torch, dtype)).save_pretrained(folder)
        if family == "OpenAIGPT":
            write_gpt_vocabulary(folder, "vocab.json", "merges.txt")
        elif family in ("Roberta", "XLMRoberta"):
            write_byte_level(folder)
        else:
            (folder / "vocab.txt").write_text(VOCABULARY)
        return folder, model.eval()

    return save


@pytest.fixture
def save(tmp_path, saved):
    """Returns a function that makes the folder of a random model of transformers."""

    def save(name: str = "BertForPreTraining", dtype: str = "float32", **changes):
        if name.startswith("OpenAIGPT"):
            for package in ("ftfy", "spacy"):
                pytest.importorskip(package)
        folder, model = saved(name, dtype, json.dumps(changes))
        return shutil.copytree(folder, tmp_path / "theirs", dirs_exist_ok=True), model

    return save


@pytest.fixture
def theirs(save) -> pathlib.Path:
    """The folder of a random model of transformers with the heads of pre-training."""
    return save()[0]


@pytest.fixture
def google(tmp_path, save):
    """Returns a function that writes the same model in the format of google-research/bert.

    It returns the folder and the model that is imported from transformers' folder.
    """
    from bert_jax.formats.names import bert as bert_names
    from bert_jax.formats.weight_table import export_params
    from bert_jax.training.workdir import open_model
    from tests.tools.convert.bundle_writer import write_bundle
    from tests.tools.convert.hf_folders import SIZES

    def write(name="BertForPreTraining", dtype=np.float32, **more):
        folder, _ = save(name, hidden_act="gelu_new", num_labels=3)
        run = open_model(str(folder))
        arrays = export_params(run.trained_params, bert_names.GOOGLE, "google")
        arrays = {name: array.astype(dtype) for name, array in arrays.items()}
        slots = {
            f"{name}/adam_{slot}": array for name, array in arrays.items() for slot in ("m", "v")
        }
        google = tmp_path / "google"
        google.mkdir()
        write_bundle(google / "bert_model.ckpt", arrays | slots | more | {"global_step": 7}, 2)
        values = json.loads((folder / "config.json").read_text()) | {"hidden_act": "gelu"}
        kept = {
            k: v for k, v in values.items() if k in SIZES["Bert"] or "dropout" in k or "act" in k
        }
        (google / "bert_config.json").write_text(json.dumps(kept))
        (google / "vocab.txt").write_text(VOCABULARY)
        return google, run

    return write


@pytest.fixture
def openai(tmp_path) -> tuple[pathlib.Path, list[np.ndarray]]:
    """A small GPT as it was released, all tensors flat in ten parts, and its tensors in order."""
    for package in ("ftfy", "spacy"):
        pytest.importorskip(package)
    from tests.tools.convert.hf_folders import GPT_PIECES, layer_shapes, write_gpt_vocabulary

    rng = np.random.default_rng(0)
    shapes = [(40, 128), (len(GPT_PIECES), 128), *layer_shapes(128), *layer_shapes(128)]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    folder = tmp_path / "released"
    folder.mkdir()
    flat = np.concatenate([array.ravel() for array in arrays])
    for number, part in enumerate(np.array_split(flat, 10)):
        np.save(folder / f"params_{number}.npy", part)
    (folder / "params_shapes.json").write_text(json.dumps(shapes))
    write_gpt_vocabulary(folder, "encoder_bpe_40000.json", "vocab_40000.bpe")
    return folder, arrays
