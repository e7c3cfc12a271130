"""Whole fine-tuning runs of the small model on files whose rule is easily learned.

| property | file |
| --- | --- |
| a step: meshes, two programs, donation, shardings, non-finite steps, rounding | test_step |
| what a model carries: by hand, microbatches, meshes, evaluation, checkpoints | test_carry |
| checkpoints: intact or absent, corruption, what is kept and chosen | test_checkpoints |
| fine-tuning: each kind of task learns; best checkpoint, review, resumption | test_finetuning |
| scores do not depend on batches, padding or devices; frozen and new layers | test_finetuning |
| causal models and GPT | test_finetuning_heads |
| messages about settings, files and folders | test_finetuning_errors |
| a teacher: whole runs, every task, another program's; refused | test_distillation |
| ELMo: phases, resumption, a tagger on the frozen encoder | test_elmo_runs |
| initial parameters: taken over, new, refused | test_initial |
| class weights, thresholds and temperature of a skewed file | test_skewed |
| several seeds; early stopping | test_seeds, test_metrics |
| several tasks on one encoder: idle heads, resumption; refused | test_multitask |
| metrics and speed; where the time goes | test_metrics, test_goodput |
| traces of steps | test_profiling |

Runs of pre-training, killed and on several machines, are in tests/runs/.
"""

import contextlib
import importlib
import io
import json
import pathlib
import random

import pytest

from bert_jax.config import store
from bert_jax.data import init_from
from bert_jax.devices.trees import flatten
from bert_jax.tools.listeners.make import evaluation_listener, training_listener
from bert_jax.training import open as opening
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.evaluate import evaluate
from tests import resuming, tiny
from tests.tools.convert.conftest import make_workdir, random_params  # noqa: F401
from tests.training import labelled_files
from tests.training.labelled_files import NUM_EVAL, NUM_TRAIN, VOCABULARY

SMALL = tiny.make_overrides(
    model__vocab_size=len(VOCABULARY),
    model__num_layers=1,
    model__initializer_range=0.1,
    epochs=3.0,
    max_length=24,
    global_batch_size=8,
    data__bucket_lengths=(24,),
    optimizer__name="adamw",
    optimizer__schedule="constant",
    optimizer__learning_rate=5e-3,
    optimizer__warmup="0",
)
# Name of a run -> its task, and changes of its configuration.
CHANGES = {
    "classification": ("classification", {}),
    "multi_label": (
        "classification",
        {
            "task.problem_type": "multi",
            "task.label": "labels",
            "task.label_separator": "|",
            "metrics": ("f1", "accuracy", "macro_f1"),
            "checkpoint.best_metric": "f1",
        },
    ),
    "regression": (
        "classification",
        {
            "task.problem_type": "regression",
            "task.label": "number",
            "metrics": ("pearson", "spearman"),
            "checkpoint.best_metric": "pearson",
        },
    ),
    "windows": (
        "classification",
        {
            "max_length": 10,
            "data.bucket_lengths": (10,),
            "task.long_texts": "windows",
            "task.windows_per_epoch": 2,
            "data.max_examples_per_row": 2,
            "task.window_pool": "max",
            "task.class_weights": '{"bad": 1.5}',
            "task.thresholds": "tuned",
        },
    ),
    "tagging": ("tagging", {"max_length": 14, "data.bucket_lengths": (14,)}),
    "crf": ("tagging", {"task.head": "crf"}),
    "span": (
        "span",
        {"task.null_answers": True, "task.doc_stride": 8, "metrics": ("f1", "exact")},
    ),
    "multiple_choice": ("multiple_choice", {}),
    "embedding": (
        "embedding",
        {
            "task.text_a": "sentence1",
            "task.text_b": "sentence2",
            "task.label": "score",
            "task.loss": "cosent",
            "task.matryoshka": (4,),
            "metrics": ("spearman", "pearson"),
            "global_batch_size": 16,
            "microbatch_size": 8,
        },
    ),
}


class Run:
    """A run in this process: its folder, what it printed, and its parameters."""

    def __init__(self, config, workdir):
        self.config, self.workdir = config, pathlib.Path(workdir)

    def train(self, *stops):
        """Trains to the end, stopped after each of these steps."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            result = resuming.train_in_parts(
                self.config, self.workdir, *stops, listener=training_listener()
            )
        self.state, self.printed = result.state, printed.getvalue()
        return self

    def evaluate(self, **changes):
        """Evaluates as --mode=evaluate, with changes of config.json."""
        config = store.load(str(self.workdir))
        config = config.replace(changes)
        with contextlib.redirect_stdout(io.StringIO()):
            return evaluate(config, str(self.workdir), listener=evaluation_listener())

    @property
    def results(self):
        return json.loads((self.workdir / "results.json").read_text())

    @property
    def labels(self):
        return json.loads((self.workdir / "labels.json").read_text())

    def rows(self, split="validation"):
        """The lines of a split in metrics.jsonl, without what depends on the clock."""
        return [row for row in resuming.metrics_of(self.workdir) if row["split"] == split]

    def params(self, use="newest"):
        """Parameters of a checkpoint by path, and its step."""
        name = self.config.best_metric
        reading = Checkpoints(str(self.workdir), best_metric=name, read_only=True)
        with contextlib.closing(reading) as checkpoints:
            step = checkpoints.chosen_step(use)
            return flatten(checkpoints.read_params(step)), step


@pytest.fixture(scope="package", autouse=True)
def few_devices():
    """Runs on labelled files have as many devices as their axes need, which compiles fastest."""
    make_mesh = opening.make_checked_mesh

    def make_small_mesh(config):
        if config.has_corpus:
            return make_mesh(config)
        return tiny.make_mesh(**config.mesh.to_dict() | {"data": max(1, config.mesh.data)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "make_checked_mesh", make_small_mesh)
        yield


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """{task: (training file, evaluation file)}, and `vocab`."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    paths = {"vocab": folder / "vocab.txt"}
    for name, write, suffix in (
        ("classification", labelled_files.write_texts, ".tsv"),
        ("tagging", labelled_files.write_words, ".conll"),
        ("span", labelled_files.write_questions, ".json"),
        ("multiple_choice", labelled_files.write_choices, ".csv"),
        ("embedding", labelled_files.write_pairs, ".tsv"),
    ):
        paths[name] = folder / f"{name}-train{suffix}", folder / f"{name}-eval{suffix}"
        for path, seed, count in zip(paths[name], (0, 1), (NUM_TRAIN, NUM_EVAL), strict=True):
            write(path, random.Random(seed), count)
    return paths | dict.fromkeys(("splade", "colbert", "cross_encoder"), paths["embedding"])


@pytest.fixture(scope="session")
def new_run(tmp_path_factory, files):
    """Returns a function (task, changes of the configuration) -> Run that has not begun."""

    def make(task, changes=None, workdir=None):
        config = importlib.import_module(f"configs.{task}").get_config()
        train_file, eval_file = files[task]
        values = {"data.train": str(train_file), "data.eval": str(eval_file)}
        if not (changes or {}).get("init_from"):
            values["data.vocab"] = str(files["vocab"])
        config.update_from_flattened_dict(SMALL | values | (changes or {}))
        workdir = str(workdir or tmp_path_factory.mktemp("run"))
        return Run(init_from.resolve(config, (), workdir), workdir)

    return make


@pytest.fixture(scope="session")
def finished(new_run, files):
    """Returns the function name (of CHANGES) -> finished run."""
    runs = {}

    def make(name):
        if name not in runs:
            task, changes = CHANGES[name]
            if name == "classification":
                more = {"data.more_eval": (f"trained={files[task][0]}",)}
                changes = changes | more
            runs[name] = new_run(task, changes).train()
        return runs[name]

    return make
