"""Table 8 of the paper: what replaces the tokens to be predicted.

    bert_jax sweep --sweep=configs/sweeps/table8.py --workdir=DIR \\
        --set corpus=text:PATH --set data=FOLDER --seeds=5
    bert_jax sweep --sweep=configs/sweeps/table8.py:mini --workdir=DIR \\
        --set corpus=text:FILE --set data=FOLDER --set task=texts --set entities=wikigold --seeds=3

Rates are MASK/SAME/RND in percent. All pre-trainings share the prepared data, since the masks are
drawn on the device. The paper's values are comparable within this table only.
"""

from bert_jax.tools.sweep.plan import Column, Run, Sweep, Table
from configs.sweeps.systems import check_scale, pretraining_run
from configs.sweeps.tasks import TASKS, choose, column, finetuning, on_features

# MASK/SAME/RND -> MNLI, NER fine-tuned, NER on features.
PAPER = {
    "80/10/10": (84.2, 95.4, 94.9),
    "100/0/0": (84.3, 94.9, 94.0),
    "80/0/20": (84.1, 95.2, 94.6),
    "80/20/0": (84.4, 95.2, 94.7),
    "0/20/80": (83.7, 94.8, 94.6),
    "0/0/100": (83.6, 94.9, 94.6),
}


def get_sweep(
    scale: str = "paper",
    corpus: str = "",
    data: str = "",
    task: str = "mnli",
    entities: str = "conll2003",
    rates: str = ",".join(PAPER),
    pretraining: str = "",
    finetuning_of: str = "",
) -> Sweep:
    """Returns the sweep.

    Args:
      scale: paper, mini or tiny.
      corpus: config.data.source of the pre-trainings.
      data: folder of the files of the tasks.
      task: a task of configs/sweeps/tasks.py that is fine-tuned.
      entities: a task of tagging there, fine-tuned and on features.
      rates: MASK/SAME/RND,... in percent.
      pretraining: overrides: FIELD=VALUE;...
      finetuning_of: overrides: FIELD=VALUE;TASK:FIELD=VALUE;...
    """
    check_scale(scale)
    tagging = {name: row for name, row in TASKS.items() if row.kind == "tagging"}
    (first,), (second,) = choose(task, TASKS, "task"), choose(entities, tagging, "task")
    features = f"{second}-features"
    names = [name.strip() for name in rates.split(",")]
    tuned = {name: finetuning(name, scale, data, finetuning_of) for name in (first, second)}
    overrides_of = tuned | {features: tuned[second] | on_features(scale)}
    runs = []
    for name in names:
        encoder = name.replace("/", "-")
        runs.append(pretraining_run(encoder, "bert", scale, corpus, pretraining, _shares(name)))
        runs += [
            Run(
                f"{encoder}-{x}",
                TASKS[x.removesuffix("-features")].config,
                overrides,
                after=encoder,
                seeds=0,
                system=encoder,
                task=x,
            )
            for x, overrides in overrides_of.items()
        ]
    ner = column(second)
    headings = (TASKS[first].title, f"{ner.title} fine-tuned", f"{ner.title} features")
    table = Table(
        "Rates by tasks (MASK/SAME/RND)",
        {name.replace("/", "-"): name for name in names},
        (
            column(first),
            Column(second, ner.metric, headings[1]),
            Column(features, ner.metric, headings[2]),
        ),
        {x.replace("/", "-"): dict(zip(headings, y, strict=True)) for x, y in PAPER.items()}
        if (first, second) == ("mnli", "conll2003")
        else {},
    )
    return Sweep(f"Table 8: masking rates, at the scale {scale}", tuple(runs), (table,))


def _shares(rate: str) -> dict[str, float]:
    try:
        mask, same, random = (int(part) / 100 for part in rate.split("/"))
    except ValueError:
        raise ValueError(f"{rate!r} is not MASK/SAME/RND in percent, such as 80/10/10.") from None
    return {"data.mask_share": mask, "data.keep_share": same, "data.random_share": random}
