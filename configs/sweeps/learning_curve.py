"""Figure 5 of the paper: the score of a task after fine-tuning from k steps of pre-training.

    bert_jax sweep --sweep=configs/sweeps/learning_curve.py --workdir=DIR \\
        --set corpus=text:PATH
    bert_jax sweep --sweep=configs/sweeps/learning_curve.py:mini --workdir=DIR \\
        --set corpus=text:FILE --set data=FOLDER --set tasks=wikigold --seeds=3

Masked tokens (BERT) and left to right, each pre-trained once; the fine-tunings start from
checkpoints of these runs, whose learning rate is that of the whole run at that point. The paper
prints no numbers beside the figure: it reports about 1.0 points more on MNLI after 1,000,000 steps
than after 500,000.
"""

from bert_jax.tools.sweep.plan import Run, Sweep, Table
from configs.sweeps.systems import SYSTEMS, check_scale, pretraining_run
from configs.sweeps.tasks import TASKS, choose, column, finetuning


def get_sweep(
    scale: str = "paper",
    corpus: str = "",
    data: str = "",
    tasks: str = "mnli",
    systems: str = "no_nsp,ltr",
    points: int = 5,
    pretraining: str = "",
    finetuning_of: str = "",
) -> Sweep:
    """Returns the sweep.

    Args:
      scale: paper, mini or tiny.
      corpus: config.data.source of the pre-trainings.
      data: folder of the files of the tasks.
      tasks: names in configs/sweeps/tasks.py.
      systems: names in configs/sweeps/systems.py; the first is the reference at each point.
      points: number of checkpoints, at equal distances, the last of them at the end.
      pretraining: overrides: FIELD=VALUE;SYSTEM:FIELD=VALUE;...
      finetuning_of: overrides: FIELD=VALUE;TASK:FIELD=VALUE;...
    """
    check_scale(scale)
    with_encoder = {name: row for name, row in SYSTEMS.items() if not row.encoder}
    names, columns = choose(systems, with_encoder, "system"), choose(tasks, TASKS, "task")
    if points < 1:
        raise ValueError(f"points={points} must be at least 1.")
    runs, rows, references = [], {}, {}
    for system in names:
        run = pretraining_run(system, system, scale, corpus, pretraining)
        steps = int(run.overrides.get("steps", 1_000_000))
        if steps % points:
            raise ValueError(f"{steps} steps are not divisible by points={points}.")
        kept = {"checkpoint.every": str(steps // points), "checkpoint.keep": points}
        runs.append(Run(system, run.config, {**run.overrides, **kept}, "", 0, 1, system, run.task))
        for step in range(steps // points, steps + 1, steps // points):
            row = f"{system}@{step}"
            rows[row] = f"{SYSTEMS[system].title}, {step:,} steps"
            if system != names[0]:
                references[row] = f"{names[0]}@{step}"
            runs += [
                Run(
                    f"{system}-step{step}-{task}",
                    TASKS[task].config,
                    finetuning(
                        task, scale, data, finetuning_of, system, SYSTEMS[system].finetuning
                    ),
                    after=system,
                    at_step=step,
                    seeds=0,
                    system=row,
                    task=task,
                )
                for task in columns
            ]
    table = Table("Steps by tasks", rows, tuple(map(column, columns)), reference=references)
    return Sweep(f"Figure 5: steps of pre-training, at the scale {scale}", tuple(runs), (table,))
