"""The one command: trains, evaluates or predicts, as --mode says.

    python -m bert_jax.main --config=configs/tiny.py --workdir=DIR
    python -m bert_jax.main --mode=evaluate --workdir=DIR
    python -m bert_jax.main --mode=predict --workdir=DIR --input=FILE --output=FILE

Kept short on purpose: what it starts can be imported and tested. jax is imported only once the
command line is known to be right.
"""

from collections.abc import Sequence

from absl import flags

from bert_jax.commands import command_line
from bert_jax.devices import allocator

FLAGS = flags.FLAGS

_MODES = ("train", "evaluate", "predict")
flags.DEFINE_string("workdir", "", "Folder of the run: configuration, data, checkpoints, metrics.")
flags.DEFINE_enum("mode", "train", _MODES, "What to do.")
flags.DEFINE_string("input", "", "predict: file to read, a text or a JSON object a line.")
flags.DEFINE_string("output", "", "predict: file to write, a JSON object a line.")
flags.DEFINE_integer("top_k", 5, "predict: candidates for each [MASK].", lower_bound=1)
flags.DEFINE_string("coordinator", "", "Address of process 0, host:port, when there are several.")
flags.DEFINE_integer("num_processes", 0, "How many processes train together.", lower_bound=0)
flags.DEFINE_integer("process_id", -1, "Which of them this one is, from 0.")


def main(argv: Sequence[str]) -> None:
    has_run = command_line.flag_value(argv, "mode") in ("evaluate", "predict")
    config = command_line.parse(argv, workdir_is_enough=has_run)
    if not FLAGS.workdir:
        raise ValueError("--workdir is missing: the folder that the run is kept in.")
    if has_run and config.get("seeds", 1) > 1:
        raise ValueError(
            f"{FLAGS.workdir} is of several seeds: name the folder of one,"
            f" --workdir={FLAGS.workdir}/seed-{config.seed}."
        )
    if FLAGS.mode == "predict" and not (FLAGS.input and FLAGS.output):
        raise ValueError("--mode=predict needs --input=FILE and --output=FILE.")

    allocator.keep_freed_memory()
    from bert_jax.devices import processes

    processes.start(FLAGS.coordinator, FLAGS.num_processes, FLAGS.process_id)
    match FLAGS.mode:
        case "train":
            if config.get("seeds", 1) > 1:
                from bert_jax.training.seeds import train_seeds as train
            else:
                from bert_jax.training.train import train
            train(config, FLAGS.workdir)
        case "evaluate":
            from bert_jax.training.evaluate import evaluate

            evaluate(config, FLAGS.workdir)
        case "predict":
            if config.task == "pretraining":
                from bert_jax.inference.masked_words import predict

                predict(config, FLAGS.workdir, FLAGS.input, FLAGS.output, top_k=FLAGS.top_k)
            else:
                from bert_jax.inference.task_predictions import predict_task

                predict_task(config, FLAGS.workdir, FLAGS.input, FLAGS.output)


if __name__ == "__main__":
    command_line.run(main)
