"""Makes a vocabulary and training shards of a corpus; training does the same if they are missing.

    python -m bert_jax prepare --config=configs/tiny.py --data_dir=DIR
    python -m bert_jax prepare --config=configs/tiny.py --data_dir=DIR --dump=3
    python -m bert_jax prepare --config=configs/tiny.py --data_dir=DIR --dump_jsonl=FILE

The result depends on the text and the settings, not on the number of processes.
"""

import itertools
from collections.abc import Sequence

from bert_jax.commands.flags import overrides
from bert_jax.commands.flags.command_line import Parser
from bert_jax.config.data import data_config
from bert_jax.config.fields import data_dir, has_corpus
from bert_jax.corpus import dump
from bert_jax.corpus.prepare import prepare


def main(argv: Sequence[str]) -> None:
    parser = Parser("bert_jax prepare", __doc__)
    parser.flag("workdir", "", "Folder of the run that the data is for.")
    parser.flag("data_dir", "", "Folder for the data; without it, the run's.")
    parser.flag("dump", 0, "Number of training examples to print.", least=0)
    parser.flag("dump_jsonl", "", "File to write all examples to, a JSON object a line.")
    config, flags = overrides.parse_config(parser, argv, workdir_is_enough=True)
    if not has_corpus(config):
        print(f"task        {config.task}: its files are read when training starts")
        return
    if not (flags.data_dir or flags.workdir or config.data.dir):
        raise ValueError("--data_dir is missing: the folder for vocabulary and shards.")
    folder = flags.data_dir or data_dir(config, flags.workdir)
    manifest = prepare(data_config(config), folder, config.data.num_processes)
    if flags.dump:
        tokenizer = manifest.tokenizer()
        rows = dump.examples(manifest, "train", manifest.sequence_lengths[0])
        for example in itertools.islice(rows, flags.dump):
            print(f"\n{dump.describe(example, tokenizer, manifest.weighted_classes)}")
    if flags.dump_jsonl:
        count = dump.write_jsonl(manifest, flags.dump_jsonl)
        print(f"Wrote {count:,} examples to {flags.dump_jsonl}.")
