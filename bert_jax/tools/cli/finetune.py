"""Fine-tunes a model on a file of labelled examples.

    bert_jax finetune train.csv --model=MODEL
    bert_jax finetune train.csv --model=MODEL --evaluate=dev.csv --workdir=DIR
    bert_jax finetune train.conll --model=MODEL --config.epochs=5
    bert_jax finetune train.csv --model=SMALL --teacher=runs/large

The file is a table (CSV, TSV, JSON lines) with a column of texts and one of labels, words with tags
(CoNLL, JSON lines), questions (SQuAD), or pairs of texts to embed (anchor, positive). Its task,
columns and kind of labels are found out and printed, and so are the settings, which follow from the
model and the number of examples, with their reasons. Without --evaluate, a stratified tenth of the
file is held out. MODEL is a workdir, or a folder of Hugging Face, google-research/bert, bilm-tf or
OpenAI. The same command continues a run that was stopped.
"""

import argparse

from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import (
    CACHE,
    IMPORT,
    MODEL,
    OVERRIDES,
    TRACKERS,
    Flag,
    prepare_process,
)
from bert_jax.tools.cli.train import train_and_report

FLAGS = (
    Flag("TRAIN", "", "file of labelled examples"),
    MODEL,
    Flag("evaluate", "", "File to evaluate on (default: a tenth of the training file)."),
    Flag("task", "", "classification, regression, ... (default: what the file is for)."),
    Flag("teacher", "", "Model fine-tuned on the same labels to distill (config.distillation)."),
    Flag("workdir", "", "Folder of the run (default: runs/ and the name of the file)."),
    CACHE,
    TRACKERS,
    IMPORT,
    OVERRIDES,
)


def run(flags: argparse.Namespace) -> None:
    prepare_process(flags.compilation_cache)
    from bert_jax.plans.finetuning import default_workdir, plan_finetuning
    from bert_jax.tools.doctor.data import check_labelled, check_rate
    from bert_jax.training.open import open_run

    workdir = flags.workdir or default_workdir(flags.train)
    given = dict(flags.overrides)
    if flags.teacher:
        given["distillation.teacher"] = flags.teacher
    plan = plan_finetuning(flags.model, flags.train, flags.evaluate, flags.task, workdir, given)
    print(*plan.lines, sep="\n", flush=True)
    with plan.begin(workdir, print):
        findings = (*check_labelled(open_run(plan.config, workdir)), *check_rate(plan.config))
        for finding in findings:
            if finding.level == "problem":
                raise UserError(f"{finding.what} {finding.fix}")
            if finding.level != "ok":
                print(f"{finding.level:<10} {finding.what}\n           -> {finding.fix}")
        train_and_report(plan.config, workdir, flags.trackers)
    command = "encode FILE" if (vectors := plan.config.task.EMBEDS) else "predict FILE"
    command += f" --{vectors}" if vectors in ("sparse", "multi") else ""
    print(f"use it     bert_jax {command} --model={workdir}")
    print(f"           bert_jax serve --model={workdir}")
