"""Table 5 of the paper: what next-sentence prediction and bidirectionality contribute.

    bert_jax sweep --sweep=configs/sweeps/table5.py --workdir=DIR \\
        --set corpus=text:PATH --set data=FOLDER --seeds=5
    bert_jax sweep --sweep=configs/sweeps/table5.py:mini --workdir=DIR \\
        --set corpus=text:FILE --set data=FOLDER --set tasks=wikigold,wnut17,squad,texts --seeds=3

BERT, without next sentences, left to right without them, and that with a BiLSTM on top; further
rows by --set systems=bert,no_nsp,ltr,ltr_bilstm,gpt,elmo. The paper pre-trains BERT-Base for a
million steps. configs/sweeps/tasks.py has the names of the files.
"""

from bert_jax.tools.sweep.plan import Run, Sweep, Table
from configs.sweeps.systems import SYSTEMS, check_scale, pretraining_run
from configs.sweeps.tasks import TASKS, choose, column, finetuning

PAPER = {
    "bert": (84.4, 88.4, 86.7, 92.7, 88.5),
    "no_nsp": (83.9, 84.9, 86.5, 92.6, 87.9),
    "ltr": (82.1, 84.3, 77.5, 92.1, 77.8),
    "ltr_bilstm": (82.1, 84.1, 75.7, 91.6, 84.9),
}
PAPER_TASKS = ("mnli", "qnli", "mrpc", "sst2", "squad")


def get_sweep(
    scale: str = "paper",
    corpus: str = "",
    data: str = "",
    tasks: str = "mnli,qnli,mrpc,sst2,squad",
    systems: str = "bert,no_nsp,ltr,ltr_bilstm",
    pretraining: str = "",
    finetuning_of: str = "",
) -> Sweep:
    """Returns the sweep.

    Args:
      scale: paper, mini or tiny.
      corpus: config.data.source of the pre-trainings.
      data: folder of the files of the tasks.
      tasks: names in configs/sweeps/tasks.py, the columns.
      systems: names in configs/sweeps/systems.py, the rows; the first is the reference.
      pretraining: overrides: FIELD=VALUE;SYSTEM:FIELD=VALUE;...
      finetuning_of: overrides: FIELD=VALUE;TASK:FIELD=VALUE;SYSTEM-TASK:FIELD=VALUE;...
    """
    check_scale(scale)
    names, columns = choose(systems, SYSTEMS, "system"), choose(tasks, TASKS, "task")
    encoders = dict.fromkeys(SYSTEMS[name].encoder or name for name in names)
    first = next(iter(encoders))
    runs = [
        pretraining_run(
            name, name, scale, corpus, pretraining, vocabulary_of=first if name != first else ""
        )
        for name in encoders
    ]
    for system in names:
        row = SYSTEMS[system]
        for task in columns:
            overrides = finetuning(task, scale, data, finetuning_of, system, row.finetuning)
            if row.bilstm:
                overrides["task.head"] = "bilstm"
            runs.append(
                Run(
                    f"{system}-{task}",
                    TASKS[task].config,
                    overrides,
                    after=row.encoder or system,
                    seeds=0,
                    system=system,
                    task=task,
                )
            )
    titles = [TASKS[task].title for task in PAPER_TASKS]
    paper = {x: dict(zip(titles, values, strict=True)) for x, values in PAPER.items()}
    table = Table(
        "Systems by tasks",
        {name: SYSTEMS[name].title for name in names},
        tuple(map(column, columns)),
        paper,
        note="The paper's values are those of BERT-Base on the development sets (Table 5).",
    )
    return Sweep(f"Table 5: pre-training tasks, at the scale {scale}", tuple(runs), (table,))
