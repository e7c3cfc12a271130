"""Raw text -> vocabulary, shards and their manifest.

    python -m bert_jax prepare --config=configs/tiny.py --data_dir=DIR
    python -m bert_jax prepare --config=configs/tiny.py --data_dir=DIR --dump=3
    python -m bert_jax prepare --config=configs/tiny.py --data_dir=DIR --dump_jsonl=FILE

What is made depends on the text and the settings only, not on the number of processes.
"""

import itertools
from collections.abc import Sequence

from absl import flags

from bert_jax.commands import command_line
from bert_jax.config import settings as config_lib
from bert_jax.corpus import dump
from bert_jax.corpus.prepare import prepare

FLAGS = flags.FLAGS


def main(argv: Sequence[str]) -> None:
    flags.DEFINE_string("workdir", "", "Folder of the run that the data is for.")
    flags.DEFINE_string("data_dir", "", "Folder for the data; empty: as the run would have it.")
    flags.DEFINE_integer("dump", 0, "Print so many training examples.", lower_bound=0)
    flags.DEFINE_string("dump_jsonl", "", "File to write all examples to, a JSON object a line.")
    config = command_line.parse(argv, workdir_is_enough=True)
    if config.task != "pretraining":
        print(f"task        {config.task}: its files are read when training starts")
        return
    if not (FLAGS.data_dir or FLAGS.workdir or config_lib.value_of(config, "data.dir")):
        raise ValueError("--data_dir is missing: the folder for vocabulary and shards.")
    folder = FLAGS.data_dir or config_lib.data_dir(config, FLAGS.workdir)
    num_processes = config_lib.value_of(config, "data.num_processes")
    manifest = prepare(config_lib.data_config(config), folder, num_processes)
    if FLAGS.dump:
        tokenizer = manifest.tokenizer()
        rows = dump.examples(manifest, "train", manifest.sequence_lengths[0])
        for example in itertools.islice(rows, FLAGS.dump):
            print(f"\n{dump.describe(example, tokenizer)}")
    if FLAGS.dump_jsonl:
        count = dump.write_jsonl(manifest, FLAGS.dump_jsonl)
        print(f"Wrote {count:,} examples to {FLAGS.dump_jsonl}.")


if __name__ == "__main__":
    command_line.run(main)
