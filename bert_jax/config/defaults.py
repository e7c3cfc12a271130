"""The default configuration of each task, of which experiments in configs/ change values.

bert_jax/config/run.py has the fields, docs/configuration.md lists them.
"""

from bert_jax.config.data import LabelledConfig
from bert_jax.config.encoders import BertConfig
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.groups import HeadConfig
from bert_jax.config.run import BidirectionalLMConfig, PretrainingConfig
from bert_jax.files.errors import UserError


def pretraining() -> PretrainingConfig:
    """Returns the defaults for masked-LM training on a corpus: BERT-Base of the paper."""
    return PretrainingConfig()


def causal_lm() -> PretrainingConfig:
    """Returns the defaults for predicting next tokens with BERT.

    Data, sizes and settings are those of `pretraining` (paper, section 5.1, "LTR & No NSP").
    Evaluations may also report, with rows of running text, word_perplexity and bits_per_character.
    """
    return PretrainingConfig(
        task="causal_lm",
        model=BertConfig(attention_pattern="causal", next_sentence=False),
        metrics=("causal_lm_loss", "causal_lm_accuracy", "perplexity"),
    )


def bidirectional_lm() -> BidirectionalLMConfig:
    """Returns the defaults for ELMo's pre-training."""
    return BidirectionalLMConfig()


def finetuning(task: str) -> FinetuningConfig:
    """Returns the defaults for training on labelled examples; `task` is a row of TASKS."""
    return FinetuningConfig(task=task)


def classification() -> FinetuningConfig:
    """Returns the defaults for labels or numbers of texts and pairs of texts."""
    return finetuning("classification")


def tagging(tags: str = "entities") -> FinetuningConfig:
    """Returns the defaults for tags of words: of `entities`, or of `words` such as parts of speech.

    Raises:
      UserError: for another kind of tags.
    """
    if tags not in ("entities", "words"):
        raise UserError(f"Unknown tags {tags!r}. Available: entities, words.")
    metrics = ("accuracy",) if tags == "words" else ("f1", "precision", "recall", "accuracy")
    return FinetuningConfig(
        task="tagging",
        # JSON lines: the default names; CoNLL: the first and the last column, or numbers from 0.
        data=LabelledConfig(text_a="", label="", batch_by="tokens"),
        head=HeadConfig(entities=tags == "entities"),
        metrics=metrics,
    )


def span() -> FinetuningConfig:
    """Returns the defaults for answers that are spans of a text (paper, section 4.2)."""
    return finetuning("span").replace(
        {
            "max_length": 384,
            "optimizer.learning_rate": 5e-5,
            "metrics": ("f1", "exact_match"),
        }
    )


def embedding(kind: str = "pairs") -> FinetuningConfig:
    """Returns the defaults for embeddings, of `pairs` that belong together or of `scored` ones.

    Raises:
      UserError: for another kind of pairs.
    """
    values = {
        "data.text_a": "anchor",
        "data.text_b": "positive",
        "data.label": "",
        "head.pool": "mean",
        "head.pooler": False,
        "global_batch_size": 64,
        "metrics": ("mrr_at_10", "ndcg_at_10", "accuracy", "recall_at_10"),
    }
    scored = {
        "data.text_a": "sentence1",
        "data.text_b": "sentence2",
        "data.label": "score",
        "head.embedding_loss": "cosent",
        "metrics": ("spearman", "pearson"),
    }
    if kind not in ("pairs", "scored"):
        raise UserError(f"Unknown pairs {kind!r}. Available: pairs, scored.")
    return finetuning("embedding").replace(values | (scored if kind == "scored" else {}))


def multiple_choice() -> FinetuningConfig:
    """Returns the defaults for the choice of an ending (paper, section 4.4)."""
    values = {"data.text_a": "sent1", "data.text_b": "sent2", "global_batch_size": 16}
    return finetuning("multiple_choice").replace(values)
