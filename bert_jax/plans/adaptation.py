"""From a text and a model to the configuration of a run that continues the pre-training."""

import dataclasses
import math
import os
import re
import tempfile
from collections.abc import Mapping
from itertools import islice
from typing import Any

from bert_jax.config import store
from bert_jax.config.editing import set_fields
from bert_jax.config.group import flatten, unflatten
from bert_jax.config.layers import DEFAULT, GIVEN, Layer, merge
from bert_jax.config.phases import MIN_LENGTH, without_given
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.config.task import default_config
from bert_jax.data import init_from
from bert_jax.data.in_memory import naming_arguments, to_file
from bert_jax.exchange import LoadedModel
from bert_jax.files.errors import UserError
from bert_jax.plans.continuing import Trained, continuing_recipe, held_out_share
from bert_jax.plans.finetuning import Plan, make_plan, own_vocabulary
from bert_jax.plans.recipe import Recipe, describe
from bert_jax.text.form import TextForm, find_form
from bert_jax.training.workdir import open_model

# Sentences that are tokenized to estimate the tokens of the text.
_MAX_MEASURED = 2000
# Folder of the workdir with texts that were given in memory.
_TEXTS = "texts"
# How often a run reports, evaluates and saves.
_DURATIONS = {"log.every": "5%", "eval.every": "20%", "checkpoint.every": "20%"}


def plan_adaptation(
    model: str,
    text: Any,
    evaluate: Any,
    workdir: str,
    given: Mapping[str, Any],
    general: Any = "",
) -> Plan:
    """Plans to continue the pre-training of a model on a text.

    The form of the text is detected; rows, length, steps and learning rate follow from the model
    and the text (bert_jax.plans.continuing). A run that has begun keeps the settings it began with.

    Args:
      model: folder of a workdir, or of another program's model.
      text: files of text, as in `data.source=text:`, of JSON lines, or `parquet:`; or texts in
        memory (`data.in_memory.to_file`), each a document.
      evaluate: files to evaluate on; "": a part of `text` is held out.
      workdir: folder of the new run.
      given: values or texts of fields that the user sets, by dotted name; they are kept.
      general: files of general text, in the form of `text`, which is evaluated too; "": none.

    Raises:
      UserError: the text, the model or a field cannot be used.
    """
    with tempfile.TemporaryDirectory() as folder, naming_arguments(f"{folder}/{_TEXTS}"):
        text = to_file(text, f"{folder}/{_TEXTS}", "text")
        evaluate = to_file(evaluate, f"{folder}/{_TEXTS}", "evaluate")
        general = to_file(general, f"{folder}/{_TEXTS}", "general")
        if store.has_begun(model, workdir) and store.load(workdir).has_corpus:
            texts = {"source": text, "held_out": evaluate, "general": general}
            config, lines = _begun(texts, workdir, given), [f"continues  the run in {workdir}"]
        else:
            config, lines = _plan(model, text, evaluate, general, workdir, given, folder)
        return make_plan(config, lines, folder, workdir)


def _plan(
    model: str,
    text: str,
    evaluate: str,
    general: str,
    workdir: str,
    given: Mapping[str, Any],
    folder: str,
) -> tuple[RunConfig, list[str]]:
    """Returns the configuration and the lines of a plan, whose files are written to `folder`."""
    form = find_form(text)
    source = open_model(model)
    trained = _trained(source)
    base = default_config("causal_lm") if source.model.is_causal else default_config("pretraining")
    any_length = {"phases": ((MIN_LENGTH, 1.0),)}
    config = base.replace(any_length, model=source.model).to_config_dict()
    config.init_from = model
    config.eval.at_start = True
    # The run's own vocab.txt has the new words, too.
    if vocabulary := own_vocabulary(model, folder, "source-" * ("data.extra_tokens" in given)):
        config.data.vocab = vocabulary
    config.update_from_flattened_dict(_DURATIONS)
    set_fields(config, given)
    if (positions := config.model.max_position_embeddings) > source.model.max_position_embeddings:
        trained = dataclasses.replace(trained, new_positions=positions)
    tokens = _count_tokens(form, source)
    recipe: Recipe = {f"data.{name}": value for name, value in form.fields.items()}
    if evaluate:
        kind = form.fields["source"][0].partition(":")[0]
        recipe["data.held_out"] = (f"{kind}:{evaluate}", "the text to evaluate on")
        recipe["data.validation_share"] = (0.0, "all of the text is trained on")
    if general:
        recipe |= _general_recipe(general, form, source)
    recipe |= continuing_recipe(trained, tokens, form.sentences_per_document, bool(evaluate))
    recipe = without_given(recipe, given)
    config.update_from_flattened_dict({name: value for name, (value, _) in recipe.items()})
    chosen = {*recipe, *(["data.vocab"] if vocabulary else [])}
    resolved = init_from.resolve(config.to_dict(), given, workdir, chosen=chosen)
    lines = list(describe(recipe))
    if not trained.predicts_tokens:
        size = trained.model.vocab_size
        lines.append(
            "head       new: the model has none that predicts tokens. The first scores are those of"
            f" chance (a loss of ln({size:,}) = {math.log(size):.1f} or more) and say nothing about"
            " the encoder."
        )
    return resolved, lines


def _begun(texts: Mapping[str, str], workdir: str, given: Mapping[str, Any]) -> RunConfig:
    """Returns the run that has begun in `workdir`, for the texts of this call."""
    config = store.load(workdir).to_config_dict()
    for name, files in texts.items():
        if files:
            kind = config.data[name].partition(":")[0] or "text"
            config.data[name] = f"{kind}:{files}"
    set_fields(config, given)
    fields = dict(flatten(config))
    merged, _ = merge([Layer(DEFAULT, fields), Layer.of(GIVEN, fields, given)])
    return store.parse(unflatten(merged))


def _general_recipe(general: str, form: TextForm, source: LoadedModel) -> Recipe:
    other = find_form(general)
    kind, other_kind = (f.fields["source"][0].partition(":")[0] for f in (form, other))
    for name in ("line_format", "field"):
        ours, theirs = (f.fields.get(name, ("",))[0] for f in (form, other))
        if kind != other_kind or ours != theirs:
            raise UserError(
                f"{general} is general text of the form {other_kind}, {name}={theirs!r}, but the"
                f" text is {kind}, {name}={ours!r}: write both in the same form."
            )
    return {
        "data.general": (f"{kind}:{general}", "general text to evaluate on"),
        "data.general_share": held_out_share(_count_tokens(other, source)),
    }


def _trained(source: LoadedModel) -> Trained:
    """Returns what a model was trained on.

    Raises:
      UserError: it was trained on rows of another kind than BERT's and GPT's.
    """
    model, run = source.model, source.config
    if model.has_directions:
        raise UserError(
            f"{source.source} has a model of the kind {model.name!r}, and adapt continues training"
            " on masked or next tokens: use bert_jax train --config=configs/elmo.py"
            " --config.init_from=MODEL."
        )
    heads = {path.split("/")[0] for path in source.trained_params}
    trained = Trained(
        model,
        predicts_tokens="masked_lm" in heads or model.lm_head == "tied",
        judges_pairs="next_sentence" in heads,
    )
    if not (source.step and isinstance(run, PretrainingConfig)):  # imported, or fine-tuned
        return trained
    longest = max(run.make_phases(0), key=lambda phase: phase.share)
    knows_rate = "adam" in run.optimizer.name and not run.optimizer.phase_schedules
    return dataclasses.replace(
        trained,
        length=longest.sequence_length,
        segments=run.data.segments,
        learning_rate=run.optimizer.learning_rate if knows_rate else 0.0,
        batch_size=longest.batch_size,
    )


def _count_tokens(form: TextForm, source: LoadedModel) -> int:
    """Returns the estimated number of tokens of a text."""
    step = max(1, len(form.sentences) // _MAX_MEASURED)
    some = list(islice(form.sentences, 0, None, step))
    tokens = sum(len(source.tokenizer.encode(sentence)) for sentence in some)
    return max(1, round(tokens * form.scale * len(form.sentences) / max(1, len(some))))


def default_workdir(text: str) -> str:
    """Returns the default folder of a run on a text."""
    name = re.sub(r"[^\w-]", "", os.path.basename(text).split(".")[0]) or "text"
    return os.path.join("runs", f"{name}-adapted")
