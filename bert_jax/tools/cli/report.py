"""Writes the report of a run, of several runs or of a sweep: one HTML file that opens offline.

    bert_jax report --workdir=DIR
    bert_jax report --workdir=DIR --held_out=10
    bert_jax report --workdir=DIR --workdir=DIR2 --output=comparison.html

The file needs no network and no other file; docs/report.md describes what is in it. `train` and
`sweep` write it too, as report.html in the workdir. With --held_out, held-out sentences go through
the model: their masked tokens are filled in, and their tokens are colored by their probability.
"""

import argparse
import os
from collections.abc import Sequence

from bert_jax.config import store
from bert_jax.files.atomic import write_text
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import CACHE, Flag
from bert_jax.tools.pages.document import Section
from bert_jax.tools.pages.titles import REPORT
from bert_jax.tools.report.report import report
from bert_jax.tools.sweep import record
from bert_jax.tools.sweep.page import sweep_page

FLAGS = (
    Flag(
        "workdir",
        [],
        "Folder of a run or a sweep; several are compared.",
        missing="the folder of a run or a sweep",
    ),
    Flag("output", "", f"The file; without it {REPORT} in the only workdir."),
    Flag("held_out", 0, "Held-out sentences to show to the model of the run.", minimum=0),
    CACHE,
)


def run(flags: argparse.Namespace) -> None:
    workdirs, output = flags.workdir, flags.output
    if len(workdirs) > 1 and not output:
        raise UserError("--output is missing: the file to write for several workdirs.")
    sweeps = [path for path in workdirs if os.path.isfile(os.path.join(path, record.PLAN))]
    if sweeps and len(workdirs) > 1:
        raise UserError(f"{sweeps[0]} holds a sweep: a sweep has a report of its own.")
    if flags.held_out and (sweeps or len(workdirs) > 1):
        raise UserError("--held_out needs the --workdir of one run.")
    if sweeps:
        page = sweep_page(sweeps[0])
    else:
        page = report(workdirs, _sentences(flags) if flags.held_out else [])
    path = output or os.path.join(workdirs[0], REPORT)
    write_text(path, page)
    print(f"wrote {path}, {os.path.getsize(path):,} bytes")


def _sentences(flags: argparse.Namespace) -> Sequence[Section]:
    """Returns held-out sentences, filled in and colored by the model.

    Raises:
      UserError: the model predicts neither masked nor next words.
    """
    from bert_jax.devices import compilation_cache
    from bert_jax.inference.model import load
    from bert_jax.tools.outputs.samples import held_out_sentences
    from bert_jax.tools.report import sentences

    (workdir,) = flags.workdir
    config = store.load(workdir)
    row = config.task
    if not (config.has_corpus and (row.FILLS_MASKS or row.READS_FORWARD)):
        raise UserError(
            f"--held_out shows sentences to models that predict masked or next words, and"
            f" {workdir} is a run of config.task.name={config.task.name!r}: leave it out."
        )
    compilation_cache.use(flags.compilation_cache)
    texts = held_out_sentences(config, workdir, flags.held_out)
    model, found = load(workdir), []
    if row.FILLS_MASKS:
        predictions = model.predict([text for text, _ in texts])
        found.append(Section("Masked tokens", sentences.filled(texts, predictions)))
    scores = model.score([text.replace("[MASK]", word, 1) for text, word in texts])
    given = "given all others" if row.FILLS_MASKS else "given those before it"
    return [*found, Section("Sentences", sentences.colored(scores, given))]
