"""transformers' Trainer in the race of recipes, with the masks of transformers' data collator."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import tokenizers
import torch
import transformers

from benchmarks.rivals.recipe_reference import Evaluations, Order, training_rows
from bert_jax.data.batch import Batch
from bert_jax.training.run import Run

MODELS = {
    "bert": (transformers.BertConfig, transformers.BertForMaskedLM),
    "modernbert": (transformers.ModernBertConfig, transformers.ModernBertForMaskedLM),
}


class TrainingRows(torch.utils.data.IterableDataset):
    """The rows of a run in their order, one at a time."""

    def __init__(self, run: Run):
        self._run = run

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for batch in training_rows(self._run):
            ids = batch["input_ids"].astype(np.int64)
            for row, is_token, is_special in zip(
                ids, batch["is_token"], batch["is_special"], strict=True
            ):
                yield {
                    "input_ids": row,
                    "attention_mask": is_token.astype(np.int64),
                    "special_tokens_mask": is_special,
                }


class EvaluationCallback(transformers.TrainerCallback):
    def __init__(self, evaluations: Evaluations):
        self._evaluations = evaluations

    def on_train_begin(self, args, state, control, **_):
        self._evaluations.begin()

    def on_step_end(self, args, state, control, model=None, **_):
        if self._evaluations.is_due(state.global_step):
            self._evaluations.evaluate(state.global_step, lambda batch: predict(model, batch))


@torch.no_grad()
def predict(model: Any, batch: Batch) -> np.ndarray:
    """Returns float32[tokens, vocabulary], the logits of the masked tokens of a batch."""
    model.eval()
    as_tensor = lambda name: torch.tensor(np.asarray(batch[name])).long().to(model.device)  # noqa: E731
    logits = model(
        input_ids=as_tensor("input_ids"), attention_mask=(as_tensor("example_ids") > 0).long()
    ).logits
    rows, slots = torch.nonzero(as_tensor("masked_lm_weights"), as_tuple=True)
    model.train()
    return logits[rows, as_tensor("masked_lm_positions")[rows, slots]].float().cpu().numpy()


def make_tokenizer(run: Run) -> Any:
    """Returns what the collator needs: the ids of the special tokens, and the vocabulary's size."""
    pieces, tokenizer = run.tokenizer.pieces, run.tokenizer
    names = ("pad", "cls", "sep", "mask", "unk")
    special = {f"{name}_token": pieces[getattr(tokenizer, f"{name}_id")] for name in names}
    core = tokenizers.models.WordLevel({piece: i for i, piece in enumerate(pieces)}, pieces[0])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(core), **special
    )


def make_model(name: str, run: Run) -> Any:
    """Returns the model of transformers with the sizes of the reference, and its own defaults."""
    config_class, model_class = MODELS[name]
    tokenizer, sizes = run.tokenizer, run.config.model
    values = {
        "vocab_size": len(tokenizer.pieces),
        "hidden_size": sizes.hidden_size,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": run.config["model.num_heads"],
        "intermediate_size": run.config["model.intermediate_size"],
        "max_position_embeddings": sizes.max_position_embeddings,
        "pad_token_id": tokenizer.pad_id,
        "cls_token_id": tokenizer.cls_id,
        "sep_token_id": tokenizer.sep_id,
        "bos_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.sep_id,
    }
    return model_class(config_class(**values))


def build(**settings: Any) -> Callable[[], dict[str, Any]]:
    """Prepares the run of `Order(**settings)`, which the measurement performs."""
    jax.config.update("jax_platforms", "cpu")  # it only draws masks: the accelerator is torch's
    order = Order(**settings)
    run, arguments = order.open(), dict(order.arguments)
    collator = transformers.DataCollatorForLanguageModeling(
        make_tokenizer(run), mlm_probability=arguments.pop("mlm_probability", 0.15)
    )
    if tail := arguments.pop("tail", 0.0):
        arguments["lr_scheduler_type"] = "warmup_stable_decay"
        arguments["lr_scheduler_kwargs"] = {"num_decay_steps": round(tail * order.steps)}
    options = transformers.TrainingArguments(
        **{
            "output_dir": os.path.join(order.workdir, "trainer"),
            "max_steps": order.steps,
            "seed": order.seed,
            "report_to": "none",
            "save_strategy": "no",
            "logging_strategy": "no",
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            **arguments,
        }
    )
    step_tokens = options.per_device_train_batch_size * run.phases[0].sequence_length
    evaluations = Evaluations(order, run, step_tokens)
    transformers.set_seed(order.seed)
    trainer = transformers.Trainer(
        make_model(order.model, run),
        options,
        collator,
        TrainingRows(run),
        callbacks=[EvaluationCallback(evaluations)],
    )

    def measure() -> dict[str, Any]:
        trainer.train()
        return {}

    return measure
