"""Table 7 of the paper: fine-tuning against fixed features, for named entities.

    bert_jax sweep --sweep=configs/sweeps/table7.py --workdir=DIR \\
        --set init_from=BERT --set data=FOLDER --seeds=5
    bert_jax sweep --sweep=configs/sweeps/table7.py:mini --workdir=DIR \\
        --set corpus=text:FILE --set data=FOLDER --set task=wikigold --seeds=3

The features are those of frozen layers; a BiLSTM with two layers reads them. Without init_from,
a model is pre-trained on the corpus first. At the scale tiny it has two layers, and the rows of the
last four are left out.
"""

from bert_jax.tools.sweep.plan import Run, Sweep, Table
from configs.sweeps.systems import check_scale, pretraining_run
from configs.sweeps.tasks import TASKS, choose, column, finetuning, on_features

LAYERS = {
    "embeddings": "Embeddings",
    "second_to_last": "Second-to-last hidden",
    "last": "Last hidden",
    "mix_last_4": "Weighted sum, last four",
    "concat_last_4": "Concatenation, last four",
    "scalar_mix": "Weighted sum, all layers",
}
# Of BERT-Base, on the development set; the mean of 5 restarts.
PAPER = {
    "finetuned": 96.4,
    "embeddings": 91.0,
    "second_to_last": 95.6,
    "last": 94.9,
    "mix_last_4": 95.9,
    "concat_last_4": 96.1,
    "scalar_mix": 95.5,
}


def get_sweep(
    scale: str = "paper",
    init_from: str = "",
    corpus: str = "",
    data: str = "",
    task: str = "conll2003",
    pretraining: str = "",
    finetuning_of: str = "",
    features: str = "",
) -> Sweep:
    """Returns the sweep.

    Args:
      scale: paper, mini or tiny.
      init_from: folder of a pre-trained model; empty: one is pre-trained.
      corpus: config.data.source of the pre-training.
      data: folder of the files of the task.
      task: a task of tagging in configs/sweeps/tasks.py.
      pretraining: overrides: FIELD=VALUE;...
      finetuning_of: overrides of all fine-tunings: FIELD=VALUE;...
      features: overrides of those on features: FIELD=VALUE;...
    """
    check_scale(scale)
    tagging = {name: row for name, row in TASKS.items() if row.kind == "tagging"}
    (name,) = choose(task, tagging, "task")
    runs, after, start = [], "bert", {}
    if init_from:
        after, start = "", {"init_from": init_from}
    else:
        runs.append(pretraining_run("bert", "bert", scale, corpus, pretraining))
    base = finetuning(name, scale, data, finetuning_of) | start
    frozen = base | on_features(scale)
    frozen |= dict(entry.split("=", 1) for entry in features.split(";") if "=" in entry)
    layers = {x: title for x, title in LAYERS.items() if scale != "tiny" or "last_4" not in x}
    systems = {"finetuned": base} | {x: frozen | {"task.layers": x} for x in layers}
    runs += [
        Run(f"{x}-{name}", TASKS[name].config, overrides, after, 0, 0, x, name)
        for x, overrides in systems.items()
    ]
    is_paper = name == "conll2003"
    table = Table(
        "Fine-tuning and features",
        {"finetuned": "Fine-tuning"} | layers,
        (column(name),),
        {x: {TASKS[name].title: value} for x, value in PAPER.items()} if is_paper else {},
        note="The paper's values are those of BERT-Base on the development set of CoNLL-2003.",
    )
    return Sweep(f"Table 7: named entities, at the scale {scale}", tuple(runs), (table,))
