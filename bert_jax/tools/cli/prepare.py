"""Makes a vocabulary and training shards of a corpus; training does the same if they are missing.

    bert_jax prepare --config=configs/tiny.py --data_dir=DIR
    bert_jax prepare --config=configs/tiny.py --data_dir=DIR --dump=3
    bert_jax prepare --config=configs/tiny.py --data_dir=DIR --dump_jsonl=FILE
    bert_jax prepare --config=configs/base.py --data_dir=DIR --runner=FlinkRunner -- \\
        --flink_master=HOST:8081

With --runner, the workers of an engine on any machines do the work (Apache Beam; extra `beam`).
They read and write the same folder. Flags after two dashes are Beam's own.

The result depends on the text and the settings, not on who does the work.
"""

import argparse
import itertools

from bert_jax.config.run import PretrainingConfig
from bert_jax.data.corpus import dump
from bert_jax.data.corpus.prepare import prepare
from bert_jax.files.beam import RUNNERS, Beam
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import CONFIG, Flag, read_config

FLAGS = (
    Flag("workdir", "", "Folder of the run that the data is for."),
    Flag("data_dir", "", "Folder for the data; without it, the run's."),
    Flag("dump", 0, "Number of training examples to print.", minimum=0),
    Flag("dump_jsonl", "", "File to write all examples to, one JSON object per line."),
    Flag("runner", "", "Engine that does the work; its flags after --.", choices=RUNNERS),
    Flag("BEAM_FLAG", [], "after --: a flag of the engine"),
    *CONFIG,
)


def run(flags: argparse.Namespace) -> None:
    config = read_config(flags)
    if flags.beam_flag and not flags.runner:
        raise UserError(f"{flags.beam_flag[0]} after -- is for the engine of --runner: name one.")
    if not isinstance(config, PretrainingConfig):
        print(f"task        {config.task.name}: its files are read when training starts")
        return
    if not (flags.data_dir or flags.workdir or config.data.dir):
        raise UserError("--data_dir is missing: the folder for vocabulary and shards.")
    folder = flags.data_dir or config.data_dir(flags.workdir)
    beam = Beam(flags.runner, flags.beam_flag) if flags.runner else None
    manifest = prepare(config.data, folder, config.data.num_processes, beam=beam)
    if flags.dump:
        tokenizer = manifest.tokenizer()
        rows = dump.examples(manifest, "train", manifest.sequence_lengths[0])
        for example in itertools.islice(rows, flags.dump):
            print(f"\n{dump.describe(example, tokenizer, manifest.weighted_classes)}")
    if flags.dump_jsonl:
        count = dump.write_jsonl(manifest, flags.dump_jsonl)
        print(f"Wrote {count:,} examples to {flags.dump_jsonl}.")
