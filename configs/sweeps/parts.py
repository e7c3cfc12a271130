"""The parts of a modern encoder, one changed at a time: what does each do to named entities?

    bert_jax sweep --sweep=configs/sweeps/parts.py:tiny --workdir=DIR --set corpus=text:FILE \\
        --set data=FOLDER --seeds=5 --parallel=2

Each seed has a pre-training of its own, so that the spread includes that of pre-training. All
pre-trainings share the vocabulary of the first one, except the parts that change it. A tagger is
trained at each of several learning rates, since the best one depends on the size of the pre-trained
weights (docs/log/finetuning.md).
"""

from typing import Any, NamedTuple

from bert_jax.tools.sweep.plan import Column, Run, Sweep, Table
from configs.sweeps.systems import SHORT, check_corpus, check_scale
from configs.sweeps.tasks import TASKS, choose, finetuning, parse_overrides


class Part(NamedTuple):
    """A change of configs/fast.py.

    Attributes:
      title: heading of its row in the table.
      overrides: fields of the pre-training.
      config: configuration file of the pre-training; {size} stands for a size of BERT.
    """

    title: str
    overrides: dict[str, Any] = {}
    config: str = "configs/fast.py:{size}"


PARTS = {
    "none": Part("configs/fast.py"),
    "learned": Part("learned positions", {"model.positions": "learned"}),
    "post": Part(
        "norms after the sub-layers, rate 1e-3",
        {"model.norm_place": "post", "optimizer.learning_rate": 1e-3},
    ),
    "query_key_norm": Part("queries and keys not normalized", {"model.query_key_norm": False}),
    "window": Part(
        "windows of 17 tokens in every second layer",
        {"model.attention_pattern": "window", "model.attention_window": 8, "model.global_every": 2},
    ),
    "convolution": Part("a convolution", {"model.convolution": 3}),
    "feed_forward": Part("no gate", {"model.feed_forward": "plain"}),
    "biases": Part("biases", {"model.biases": True}),
    "copy_head": Part("a copy head", {"model.copy_head": True}),
    "next": Part("masked tokens predicted from the position before", {"model.predicts_next": True}),
    "masked_15": Part(
        "masks 15 %", {"data.masked_lm_prob": 0.15, "data.final_masked_lm_prob": 0.0}
    ),
    "cased": Part("cased vocabulary", {"data.vocab": "train:wordpiece", "data.lowercase": False}),
    "bpe": Part("BPE, cased", {"data.vocab": "train:bpe", "data.lowercase": False}),
    "paper": Part("the paper's recipe", config="configs/{size}.py"),
}
# At a small scale, in addition to what all sweeps have.
_SHORT = SHORT | {"model.vocab_size": 8192, "data.dupe_factor": 2}


def get_sweep(
    scale: str = "paper",
    corpus: str = "",
    data: str = "",
    task: str = "wikigold",
    parts: str = ",".join(PARTS),
    rates: str = "1e-3,3e-3",
    pretraining: str = "",
    finetuning_of: str = "",
) -> Sweep:
    """Returns the sweep.

    Args:
      scale: paper (size base), mini or tiny.
      corpus: config.data.source of the pre-trainings.
      data: folder of the files of the task.
      task: a task of configs/sweeps/tasks.py that is fine-tuned.
      parts: rows of PARTS.
      rates: learning rates of the fine-tunings.
      pretraining: overrides: FIELD=VALUE;PART:FIELD=VALUE;...
      finetuning_of: overrides: FIELD=VALUE;PART:FIELD=VALUE;...

    Raises:
      ValueError: a setting has no such value, or there is no corpus.
    """
    check_scale(scale)
    check_corpus(corpus)
    (task,), names = choose(task, TASKS, "task"), choose(parts, PARTS, "part")
    rate_names = [rate.strip() for rate in rates.split(",")]
    size = "base" if scale == "paper" else scale
    runs = []
    for name in names:
        part = PARTS[name]
        values = {"data.source": corpus, "data.eval_masked_lm_prob": 0.15}
        if name != names[0]:
            values["data.vocab"] = f"{{data:{names[0]}}}/vocab.txt"
        values |= ({} if scale == "paper" else _SHORT) | part.overrides
        values |= parse_overrides(pretraining, name)
        config = part.config.format(size=size)
        runs.append(Run(name, config, values, seeds=0, system=name, task="pretraining"))
        for rate in rate_names:
            overrides = finetuning(task, scale, data, finetuning_of, name)
            overrides["optimizer.learning_rate"] = float(rate)
            runs.append(
                Run(
                    f"{name}-{rate}",
                    TASKS[task].config,
                    overrides,
                    after=name,
                    seeds=0,
                    system=name,
                    task=rate,
                )
            )
    columns = (
        Column("pretraining", "masked_lm_bits_per_character", "bits per character", 1.0, True),
        *(
            Column(rate, TASKS[task].metric, f"{TASKS[task].title}, rate {rate}")
            for rate in rate_names
        ),
    )
    table = Table("One part changed", {name: PARTS[name].title for name in names}, columns)
    return Sweep(f"Parts of a modern encoder, at the scale {scale}", tuple(runs), (table,))
