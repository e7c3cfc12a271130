"""Writes the report of a run, of several runs or of a sweep: one HTML file that opens offline.

    python -m bert_jax report --workdir=DIR
    python -m bert_jax report --workdir=DIR --held_out=10
    python -m bert_jax report --workdir=DIR --workdir=DIR2 --output=comparison.html

The file needs no network and no other file; docs/report.md describes what is in it. `train` and
`sweep` write it too, as report.html in the workdir. With --held_out, held-out sentences go through
the model: their masked tokens are filled in, and their tokens are colored by their probability.
"""

import os
from collections.abc import Sequence

from bert_jax.config import store
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.files.atomic import write_text
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.flags import run_flags
from bert_jax.tools.cli.flags.command_line import Parser
from bert_jax.tools.pages.document import Section
from bert_jax.tools.pages.titles import REPORT
from bert_jax.tools.report import sentences
from bert_jax.tools.report.report import report
from bert_jax.tools.sweep import record
from bert_jax.tools.sweep.page import sweep_page


def main(argv: Sequence[str]) -> None:
    parser = Parser("bert_jax report", __doc__)
    parser.repeated("workdir", "Folder of a run or a sweep; several are compared.", "DIR")
    parser.flag("output", "", f"The file; without it {REPORT} in the only workdir.")
    parser.flag("held_out", 0, "Held-out sentences to show to the model of the run.", least=0)
    run_flags.add_cache(parser)
    flags = parser.parse(argv)
    if flags.held_out:
        run_flags.use_cache(flags)
    path = write(flags.workdir, flags.output, flags.held_out)
    print(f"wrote {path}, {os.path.getsize(path):,} bytes")


def write(workdirs: Sequence[str], output: str, held_out: int = 0) -> str:
    """Writes the report of these folders; returns its path.

    Raises:
      UserError: there is no folder, one holds no run, several have no output, or the model of the
        run cannot be shown sentences.
    """
    if not workdirs:
        raise UserError("--workdir is missing: the folder of a run or a sweep.")
    if len(workdirs) > 1 and not output:
        raise UserError("--output is missing: the file to write for several workdirs.")
    sweeps = [path for path in workdirs if os.path.isfile(os.path.join(path, record.PLAN))]
    if sweeps and len(workdirs) > 1:
        raise UserError(f"{sweeps[0]} holds a sweep: a sweep has a report of its own.")
    if held_out and (sweeps or len(workdirs) > 1):
        raise UserError("--held_out needs the --workdir of one run.")
    more = _sentences(workdirs[0], held_out) if held_out else []
    page = sweep_page(sweeps[0]) if sweeps else report(workdirs, more)
    path = output or os.path.join(workdirs[0], REPORT)
    write_text(path, page)
    return path


def _sentences(workdir: str, count: int) -> list[Section]:
    """Returns held-out sentences, filled in and colored by the model.

    Raises:
      UserError: the model predicts neither masked nor next words.
    """
    from bert_jax.data.labelled.texts import Text
    from bert_jax.inference.loading import load_workdir
    from bert_jax.inference.predictor import Predictor, TaskPredictor
    from bert_jax.inference.scoring import Scorer
    from bert_jax.tasks import find_task
    from bert_jax.tools.outputs.samples import held_out_sentences

    config = store.load(workdir)
    row = find_task(config.task)
    if not (config.has_corpus and (row.fills_masks or row.reads_forward)):
        raise UserError(
            f"--held_out shows sentences to models that predict masked or next words, and"
            f" {workdir} is a run of config.task={config.task!r}: leave it out."
        )
    texts = held_out_sentences(Manifest.load(config.data_dir(workdir)), count)
    predictor, found = Predictor(load_workdir(config, workdir)), []
    if row.fills_masks:
        windows = TaskPredictor(predictor).predict([Text(text) for text, _ in texts])
        predictions = [prediction for window in windows for prediction in window]
        found.append(Section("Masked tokens", sentences.filled(texts, predictions)))
    scorer = Scorer(predictor)
    whole = [Text(text.replace("[MASK]", word, 1)) for text, word in texts]
    scores = list(scorer.score(map(scorer.row, whole)))
    given = "given all others" if row.fills_masks else "given those before it"
    return [*found, Section("Sentences", sentences.colored(scores, given))]
