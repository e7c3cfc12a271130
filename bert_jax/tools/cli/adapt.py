"""Continues the pre-training of a model on your own text.

    bert_jax adapt text.txt --model=MODEL
    bert_jax adapt "texts/*.txt" --model=MODEL --evaluate=heldout.txt --workdir=DIR
    bert_jax adapt text.txt --model=MODEL --general=general.txt --config.data.replay=0.2
    bert_jax adapt text.txt --model=MODEL --config.data.extra_tokens=frequent:500
    bert_jax adapt text.txt --model=MODEL --config.epochs=3 --export=FOLDER

The text is plain (paragraphs, sentences, or wrapped lines; plain, gzip, bz2, xz or zstd), JSON
lines or Parquet. Its form is found out and printed, and so are the settings, which follow from the
model and the size of the text, with their reasons: a model predicts what it was trained to predict.
Without --evaluate, a part of the text is held out; it is scored before the first step and at the
end, and so is a part of the general text, if there is any. --export also writes a folder that
transformers loads. MODEL is a workdir, or a folder of Hugging Face, google-research/bert or OpenAI.
The same command continues a run that was stopped.
"""

import argparse
import os

from bert_jax.tools.cli.command_line import CACHE, MODEL, OVERRIDES, TRACKERS, Flag, prepare_process
from bert_jax.tools.cli.train import train_and_report

FLAGS = (
    Flag("TEXT", "", "files of text, or a glob in quotes"),
    MODEL,
    Flag("evaluate", "", "Text to evaluate on (default: a part of the text is held out)."),
    Flag("general", "", "General text to evaluate on too, in the same form."),
    Flag("export", "", "Folder to write for transformers, after training."),
    Flag("workdir", "", "Folder of the run (default: runs/NAME-adapted, NAME that of the text)."),
    CACHE,
    TRACKERS,
    OVERRIDES,
)


def run(flags: argparse.Namespace) -> None:
    prepare_process(flags.compilation_cache)
    from bert_jax.exchange import check_output_folder
    from bert_jax.exchange.huggingface import check_encoder
    from bert_jax.plans.adaptation import default_workdir, plan_adaptation

    workdir = flags.workdir or default_workdir(flags.text)
    texts = flags.text, flags.evaluate
    plan = plan_adaptation(flags.model, *texts, workdir, flags.overrides, flags.general)
    if flags.export:  # refused before training, not after it
        check_output_folder(flags.export)
        check_encoder(plan.config.model)
    print(*plan.lines, sep="\n", flush=True)
    with plan.begin(workdir, print):
        train_and_report(plan.config, workdir, flags.trackers)
    if flags.export:
        from bert_jax.tools.convert.conversions import to_huggingface

        to_huggingface(workdir, os.path.normpath(flags.export))
    fill = f'fill_mask --model={workdir} "Some [MASK] of yours."'
    uses = [
        fill if plan.config.task.FILLS_MASKS else f'generate --model={workdir} "The beginning"',
        f"finetune train.csv --model={workdir}",
        f"convert to_hf {workdir} FOLDER  (to_onnx if transformers has no such model)",
    ]
    print("use it     " + "\n           ".join(f"python -m bert_jax {use}" for use in uses))
