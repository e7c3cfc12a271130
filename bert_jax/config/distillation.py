"""The fields of distillation: a teacher, and what of it a student is compared with."""

import dataclasses
from typing import Any

from bert_jax.config.encoder_fields import EncoderConfig, TransformerConfig
from bert_jax.config.group import Group, setting
from bert_jax.files.errors import UserError


def check_layers(name: str, layers: tuple[Any, ...]) -> None:
    """Raises UserError for anything but numbers of layers."""
    if not all(type(layer) is int and layer > 0 for layer in layers):
        raise UserError(f"{name}={layers!r} are no numbers of layers, such as (1, 3, 6).")


def _check_layer_map(name: str, entries: tuple[Any, ...]) -> None:
    pairs = [entry for entry in entries if isinstance(entry, tuple) and len(entry) == 2]
    if len(pairs) < len(entries) or not all(
        type(layer) is int and layer >= 0 for pair in pairs for layer in pair
    ):
        raise UserError(
            f"{name}={entries!r} are not pairs of a layer of the student and one of the teacher, 0"
            " for the embeddings, such as ((0, 0), (1, 3), (2, 6)): correct it, or () for equal"
            " distances."
        )


# Field -> fields without which it has no effect.
_NEEDS = {
    "weight": ("teacher",),
    "temperature": ("teacher", "weight"),
    "hidden_weight": ("teacher",),
    "layer_map": ("hidden_weight",),
    "relation_weight": ("teacher",),
    "relation_layer": ("relation_weight",),
    "relation_heads": ("relation_weight",),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationConfig(Group):
    """The distillation of a teacher into the run's model, the student."""

    # Folder of the teacher: a workdir, or another program's model, with the vocabulary of the run;
    # empty: there is none.
    teacher: str = setting("", is_path=True)
    # Weight of the divergence from the teacher's predictions (Hinton et al. 2015); the loss of the
    # labels, or of the masked tokens, has 1 - weight. 0: the teacher's predictions are not used,
    # and it may have any task.
    weight: float = setting(0.5, minimum=0)
    # Divisor of the logits of both models; the divergence is multiplied by its square.
    temperature: float = setting(1.0)
    # Weight of the mean squared error of hidden states, after a learned projection where the
    # hidden sizes differ (TinyBERT, Jiao et al. 2019); 0: they are not compared.
    hidden_weight: float = setting(0.0, minimum=0)
    # Hidden states that are compared: (layer of the student, layer of the teacher), ..., 0 for the
    # embeddings; (): all of the student, with layers of the teacher at equal distances.
    layer_map: tuple[tuple[int, int], ...] = setting((), check=_check_layer_map)
    # Weight of the divergence of query-query, key-key and value-value relations of the student's
    # last layer (MiniLMv2, Wang et al. 2020); 0: they are not compared.
    relation_weight: float = setting(0.0, minimum=0)
    # The teacher's layer with these relations, from 1; 0: the last one.
    relation_layer: int = setting(0, minimum=0)
    # Relation heads; they divide both hidden sizes evenly. 0: the teacher's attention heads.
    relation_heads: int = setting(0, minimum=0)

    @property
    def reads_layers(self) -> bool:
        """Whether the layers of both models are compared."""
        return self.hidden_weight > 0 or self.relation_weight > 0

    def check(self) -> None:
        if self.weight > 1:
            raise UserError(f"weight={self.weight} must be at most 1.")
        if self.teacher and not (self.weight or self.reads_layers):
            raise UserError(
                f"teacher={self.teacher!r} has no effect: set weight, hidden_weight or"
                " relation_weight above 0."
            )
        for item in dataclasses.fields(self):
            for needed in _NEEDS.get(item.name, ()):
                if getattr(self, item.name) != item.default and not getattr(self, needed):
                    raise UserError(
                        f"{item.name}={getattr(self, item.name)!r} has no effect without"
                        f" config.distillation.{needed}: set that too, or"
                        f" {item.name}={item.default!r}."
                    )

    def check_model(self, model: EncoderConfig, has_corpus: bool) -> None:
        """Raises UserError for a student whose outputs or layers cannot be compared.

        Args:
          model: the student.
          has_corpus: whether it is pre-trained.
        """
        if self.teacher and self.weight and has_corpus and model.has_copy_head:
            raise UserError(
                "model.copy_head=True mixes a softmax with copies, which have no logits to compare:"
                " set config.model.copy_head=False, or config.distillation.weight=0."
            )
        if not self.reads_layers:
            return
        if not isinstance(model, TransformerConfig):
            raise UserError(
                f"model.name={model.name!r} is no Transformer, whose layers can be compared: set"
                " config.distillation.hidden_weight and relation_weight to 0."
            )
        if has_corpus and model.last_layer_predicted_only:  # no effect in fine-tuning
            raise UserError(
                "model.last_layer_predicted_only=True hides layers that"
                " config.distillation.hidden_weight and relation_weight compare: set"
                " config.model.last_layer_predicted_only=False."
            )
