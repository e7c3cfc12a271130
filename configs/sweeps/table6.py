"""Table 6 of the paper: the size of the model.

    bert_jax sweep --sweep=configs/sweeps/table6.py --workdir=DIR \\
        --set corpus=text:PATH --set data=FOLDER --seeds=5
    bert_jax sweep --sweep=configs/sweeps/table6.py:mini --workdir=DIR \\
        --set corpus=text:FILE --set data=FOLDER --set tasks=texts

A size is LAYERS-HIDDEN-HEADS; the feed-forward layers have four times the hidden size. The first
column is the perplexity of held-out masked tokens.
"""

from bert_jax.tools.sweep.plan import Column, Run, Sweep, Table
from configs.sweeps.systems import check_scale, pretraining_run
from configs.sweeps.tasks import TASKS, choose, column, finetuning

SIZES = {
    "paper": "3-768-12,6-768-3,6-768-12,12-768-12,12-1024-16,24-1024-16",
    "mini": "1-256-4,2-256-4,4-128-2,4-256-4",
    "tiny": "1-64-2,1-128-2,2-128-2",
}
PERPLEXITY = Column("pretraining", "masked_lm_perplexity", "LM perplexity", 1.0, True)
PAPER_COLUMNS = ("LM perplexity", "MNLI-m", "MRPC", "SST-2")
PAPER = {
    "3-768-12": (5.84, 77.9, 79.8, 88.4),
    "6-768-3": (5.24, 80.6, 82.2, 90.7),
    "6-768-12": (4.68, 81.9, 84.8, 91.3),
    "12-768-12": (3.99, 84.4, 86.7, 92.9),
    "12-1024-16": (3.54, 85.7, 86.9, 93.3),
    "24-1024-16": (3.23, 86.6, 87.8, 93.7),
}


def get_sweep(
    scale: str = "paper",
    corpus: str = "",
    data: str = "",
    tasks: str = "mnli,mrpc,sst2",
    sizes: str = "",
    pretraining: str = "",
    finetuning_of: str = "",
) -> Sweep:
    """Returns the sweep.

    Args:
      scale: paper, mini or tiny.
      corpus: config.data.source of the pre-trainings.
      data: folder of the files of the tasks.
      tasks: names in configs/sweeps/tasks.py.
      sizes: LAYERS-HIDDEN-HEADS,...; empty: those of the scale.
      pretraining: overrides: FIELD=VALUE;SIZE:FIELD=VALUE;...
      finetuning_of: overrides: FIELD=VALUE;TASK:FIELD=VALUE;...
    """
    check_scale(scale)
    columns = choose(tasks, TASKS, "task")
    names = [name.strip() for name in (sizes or SIZES[scale]).split(",")]
    runs = []
    for name in names:
        run = pretraining_run(name, "bert", scale, corpus, pretraining, _model(name))
        runs.append(run)
        runs += [
            Run(
                f"{name}-{task}",
                TASKS[task].config,
                finetuning(task, scale, data, finetuning_of),
                after=name,
                seeds=0,
                system=name,
                task=task,
            )
            for task in columns
        ]
    table = Table(
        "Sizes by tasks",
        {name: "L={} H={} A={}".format(*name.split("-")) for name in names},
        (PERPLEXITY, *map(column, columns)),
        {x: dict(zip(PAPER_COLUMNS, values, strict=True)) for x, values in PAPER.items()},
        note="The paper's scores are means of 5 restarts of fine-tuning.",
    )
    return Sweep(f"Table 6: sizes, at the scale {scale}", tuple(runs), (table,))


def _model(size: str) -> dict[str, int]:
    try:
        layers, hidden, heads = map(int, size.split("-"))
    except ValueError:
        raise ValueError(f"{size!r} is not LAYERS-HIDDEN-HEADS, such as 12-768-12.") from None
    return {
        "model.num_layers": layers,
        "model.hidden_size": hidden,
        "model.num_heads": heads,
        "model.intermediate_size": 4 * hidden,
    }
