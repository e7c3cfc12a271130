"""Predicts the [MASK] tokens of texts.

    python -m bert_jax fill_mask --workdir=DIR "The [MASK] of the list is returned."
    python -m bert_jax fill_mask --workdir=DIR --held_out=5

The second form masks frequent words of held-out sentences, and prints the masked tokens too.
"""

from collections.abc import Sequence

from bert_jax.files.errors import UserError
from bert_jax.tools.cli.flags import configuration, run_flags
from bert_jax.tools.cli.flags.command_line import Parser


def main(argv: Sequence[str]) -> None:
    parser = Parser("bert_jax fill_mask", __doc__)
    parser.flag("workdir", "", "Folder of a trained run, or of imported weights.")
    parser.flag("top_k", 5, "Candidates for each [MASK].", least=1)
    parser.flag("held_out", 0, "Number of held-out sentences.", least=0)
    parser.words("TEXT", "text with one or more [MASK]", "*")
    run_flags.add_cache(parser)
    config, flags = configuration.parse_config(parser, argv, workdir_is_enough=True)
    if not flags.workdir:
        raise UserError("--workdir is missing: the folder of a trained run.")
    if not flags.text and not flags.held_out:
        raise UserError('Give a text with a mask, for example "The [MASK] of the list.".')
    for text in flags.text:
        if "[MASK]" not in text:
            raise UserError(f"There is no [MASK] in {text!r}.")

    from bert_jax.data.corpus.manifest import Manifest
    from bert_jax.data.labelled.texts import Text
    from bert_jax.inference.loading import load_workdir
    from bert_jax.inference.predictor import Predictor, TaskPredictor
    from bert_jax.inference.scoring import check_fills_masks
    from bert_jax.tools.outputs.samples import held_out_sentences

    run_flags.use_cache(flags)
    model = load_workdir(config, flags.workdir)
    check_fills_masks(model)
    predictor = TaskPredictor(Predictor(model), flags.top_k)
    texts = [(text, "") for text in flags.text]
    if flags.held_out:
        manifest = Manifest.load(config.data_dir(flags.workdir))
        texts += held_out_sentences(manifest, flags.held_out)
    examples = [Text(text) for text, _ in texts]
    for example in examples:
        predictor.check(example)
    windows = predictor.predict(examples)
    predictions = (prediction for window in windows for prediction in window)
    for (text, word), prediction in zip(texts, predictions, strict=True):
        print(f"\n{text}" + (f"   ({word})" if word else ""))
        for mask in prediction["masks"]:
            for candidate in mask["candidates"]:
                print(f"  {candidate['probability']:6.1%}  {candidate['token']}")
