"""The fields of distillation: a teacher, and the weight of its predictions."""

import dataclasses

from bert_jax.config.encoder_fields import EncoderConfig
from bert_jax.config.group import Group, setting
from bert_jax.files.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationConfig(Group):
    """The distillation of a teacher into the run's model, the student."""

    # Folder of the teacher: a workdir, or another program's model, with the vocabulary of the run;
    # empty: there is none.
    teacher: str = setting("", is_path=True)
    # Weight of the divergence from the teacher's predictions (Hinton et al. 2015); the loss of the
    # labels, or of the masked tokens, has 1 - weight.
    weight: float = setting(0.5)
    # Divisor of the logits of both models; the divergence is multiplied by its square.
    temperature: float = setting(1.0)

    def check(self) -> None:
        if self.weight > 1:
            raise UserError(f"weight={self.weight} must be at most 1.")
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if not self.teacher and value != item.default:
                raise UserError(
                    f"{item.name}={value!r} has no effect without config.distillation.teacher: set"
                    f" that too, or {item.name}={item.default!r}."
                )

    def check_model(self, model: EncoderConfig, has_corpus: bool) -> None:
        """Raises UserError for a student whose predictions cannot be compared.

        Args:
          model: the student.
          has_corpus: whether it is pre-trained.
        """
        if self.teacher and has_corpus and model.has_copy_head:
            raise UserError(
                "model.copy_head=True mixes a softmax with copies, which have no logits to compare:"
                " set config.model.copy_head=False, or leave out config.distillation.teacher."
            )
