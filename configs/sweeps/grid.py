"""Appendix A.3 of the paper: the values that it searches when it fine-tunes.

    bert_jax sweep --sweep=configs/sweeps/grid.py --workdir=DIR \\
        --set init_from=BERT --set tasks=mrpc,rte
    bert_jax sweep --sweep=configs/sweeps/grid.py --workdir=DIR \\
        --set init_from=WORKDIR --set data=FOLDER --set tasks=wikigold --set rates=3e-4,1e-3

Batches of 16 and 32, rates of 5e-5, 3e-5 and 2e-5, 2, 3 and 4 epochs: 18 runs for each task and
seed. The best of each task is marked; it was chosen on the file that it is scored on.
"""

import itertools

from bert_jax.tools.sweep.plan import Run, Sweep, Table
from configs.sweeps.tasks import TASKS, choose, column, finetuning


def get_sweep(
    init_from: str = "",
    data: str = "",
    tasks: str = "mrpc",
    batches: str = "16,32",
    rates: str = "5e-5,3e-5,2e-5",
    epochs: str = "2,3,4",
    finetuning_of: str = "",
) -> Sweep:
    """Returns the sweep.

    Args:
      init_from: folder of a pre-trained model.
      data: folder of the files of the tasks.
      tasks: names in configs/sweeps/tasks.py.
      batches: values of config.global_batch_size.
      rates: values of config.optimizer.learning_rate.
      epochs: values of config.epochs.
      finetuning_of: overrides: FIELD=VALUE;TASK:FIELD=VALUE;...
    """
    if not init_from:
        raise ValueError("The model to fine-tune is missing: --set init_from=FOLDER.")
    columns = choose(tasks, TASKS, "task")
    runs, rows = [], {}
    for batch, rate, length in itertools.product(*(x.split(",") for x in (batches, rates, epochs))):
        system = f"batch{batch}-rate{rate}-epochs{length}"
        rows[system] = f"batch {batch}, rate {rate}, {length} epochs"
        values = {
            "init_from": init_from,
            "global_batch_size": batch,
            "optimizer.learning_rate": rate,
            "epochs": length,
        }
        runs += [
            Run(
                f"{system}-{task}",
                TASKS[task].config,
                finetuning(task, "paper", data, finetuning_of) | values,
                seeds=0,
                system=system,
                task=task,
            )
            for task in columns
        ]
    table = Table("Grid", rows, tuple(map(column, columns)), reference={}, mark_best=True)
    return Sweep("Appendix A.3: batch size, rate and epochs", tuple(runs), (table,))
