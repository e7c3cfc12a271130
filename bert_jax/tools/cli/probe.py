"""Shows what each layer of an encoder knows: linear classifiers of its frozen vectors.

    bert_jax probe reviews.csv --model=MODEL
    bert_jax probe SentEval/data/probing --model=MODEL --max_texts=10000 --output=probes.jsonl

For each file, a logistic regression learns from the vectors of one layer after the other, means
over all tokens, and is scored on held-out texts. A file is a table of texts and classes, of which a
fifth is held out, or one of SentEval's probing sets, which have their own parts. Prints a row for
each file: the accuracy of the most frequent class, of TF-IDF without an encoder, and of each layer,
the output of the embeddings first. If the model is a workdir, its report shows the curves.
"""

import argparse
import dataclasses
import pathlib

from bert_jax.tools.cli.command_line import CACHE, MODEL, Flag, prepare_process
from bert_jax.tools.outputs.files import OBJECTS, check_output, write_objects

FLAGS = (
    Flag("DATA", "", "A labelled file, or a folder of them."),
    *(MODEL, CACHE),
    Flag(
        "max_texts",
        0,
        "Texts that are used of a file, or of each part of SentEval's, chosen at random; 0: all.",
        minimum=0,
    ),
    Flag("output", "", "File for the accuracies, .jsonl or .parquet."),
)


def run(flags: argparse.Namespace) -> None:
    check_output(flags.output, OBJECTS, [flags.data])
    from bert_jax.config.store import is_run
    from bert_jax.files.atomic import read_json, write_json
    from bert_jax.inference.model import load
    from bert_jax.inference.probing import probe
    from bert_jax.tools.report.report import write_report
    from bert_jax.tools.report.workdir import PROBES

    prepare_process(flags.compilation_cache)
    found = probe(load(flags.model), flags.data, flags.max_texts)
    layers = range(len(found[0].layers))
    print(f"{'':<24} {'texts':>7} {'constant':>9} {'TF-IDF':>7}", *(f"{n:>6}" for n in layers))
    for one in found:
        values = (f"{value:>6.1%}" for value in one.layers)
        sizes = f"{one.test:>7,} {one.constant:>9.1%} {one.bag_of_words:>7.1%}"
        print(f"{one.name:<24} {sizes}", *values)
    rows = [dataclasses.asdict(one) for one in found]
    if flags.output:
        write_objects(flags.output, rows)
    if is_run(flags.model):
        # The report also has the files of earlier commands.
        path = pathlib.Path(flags.model, PROBES)
        earlier = read_json(path) if path.exists() else []
        names = {row["name"] for row in rows}
        write_json(str(path), [row for row in earlier if row["name"] not in names] + rows)
        print(write_report(flags.model))
