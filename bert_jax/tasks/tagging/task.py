"""A tag for each word, such as named entities (paper, section 5.3)."""

import dataclasses
import itertools
import operator
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.data import LabelledConfig
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.group import derived, setting
from bert_jax.data.labelled.conll import read_plain_words, read_tagged
from bert_jax.data.labelled.encode_words import WordRows, documents, encode_words
from bert_jax.data.labelled.examples import Labels, TaggedExample
from bert_jax.data.labelled.forms.word_files import detect_columns
from bert_jax.data.labelled.reading import ending_of
from bert_jax.data.labelled.tables import parse_column
from bert_jax.data.labelled.tags import as_iob2
from bert_jax.files.errors import UserError
from bert_jax.models import crf
from bert_jax.models.task_heads import TaggingModel, TaggingOutputs
from bert_jax.scores import bag_of_words
from bert_jax.scores import classification as scores
from bert_jax.scores import entities as entity_scores
from bert_jax.scores.sampling import error_of_counts
from bert_jax.tasks import losses
from bert_jax.tasks.class_loss import LOSS_FIELDS, ClassLoss, ClassLossConfig, balanced_weights
from bert_jax.tasks.losses import Sum, Sums
from bert_jax.tasks.supervised import Headed
from bert_jax.tasks.tagging.review import make_review, tags_of
from bert_jax.tasks.task import (
    WINDOW,
    Answer,
    Batch,
    Prediction,
)

# Keyed by whether tags mark entities.
METRICS = {True: ("f1", "precision", "recall", "accuracy"), False: ("accuracy",)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tagging(ClassLossConfig, Headed):
    """A tag for each word.

    Attributes:
      metrics: some of METRICS[entities].
      labels: the tags.
      class_loss: the loss of tags, without a CRF, set by `bind`.
    """

    name: str = "tagging"
    # Whether tags mark entities (O, B-TYPE, I-TYPE, ...) or classify single words.
    entities: bool = setting(True)
    # JSON lines: the field of the words; CoNLL: their column by number from 0, empty for the first;
    # tables with one word per row: by name.
    text_a: str = setting("")
    # The same for the tags; empty: `tags`, or the last column.
    label: str = setting("")
    # Tables with one word per row: column of the sentence.
    id: str = setting("")
    # What is between the encoder and the last layer: nothing, a CRF (`crf`), a BiLSTM or both.
    head: str = setting("linear", choices=("linear", "bilstm", "crf", "bilstm_crf"))
    # Whether to fill rows with the preceding and following sentences (paper, section 5.3).
    document_context: bool = setting(False)
    # What gives a word its tag: its `first` sub-word, the `mean` of the probabilities of its
    # sub-words, or the sub-word with the most probable tag (`max`); in training too.
    subwords: str = setting("first", choices=("first", "mean", "max"))
    # A word that several windows of a long sentence show has its tag from the window with most
    # `context`, or from the mean of the probabilities of all (`vote`).
    overlap: str = setting("context", choices=("context", "vote"))
    # Tokens from the start of a window of a long sentence to that of the next one; 0: half of a
    # window.
    stride: int = setting(0, minimum=0)
    # Removes the numbers in files whose words are single characters, each followed by its position
    # in a word (`A0`, `B1`), as in Weibo's; other files stay as they are.
    strip_numbers: bool = setting(False)
    # `msra_ner`: words are characters; empty: they are not.
    published: str = setting("", choices=("", "msra_ner"))
    class_loss: ClassLoss = derived(ClassLoss())

    HEAD = "classifier"
    TAUGHT = ("subwords",)
    PACKS = True
    EXAMPLE = TaggedExample
    COLUMNS = {"text_a": "words"}

    @classmethod
    def default_config(cls, tags: str = "entities") -> FinetuningConfig:
        """Returns the defaults for tags of words: of `entities`, or of `words` such as parts of
        speech.

        Raises:
          UserError: for another kind of tags.
        """
        if tags not in ("entities", "words"):
            raise UserError(f"Unknown tags {tags!r}. Available: entities, words.")
        return FinetuningConfig(
            task=cls(entities=tags == "entities"),
            data=LabelledConfig(batch_by="tokens"),
            metrics=METRICS[tags == "entities"],
        )

    def check(self) -> None:
        super().check()
        if self.has_crf:
            why = "a CRF has a loss of whole sentences, config.task.head=linear one of words"
            self.check_unset(LOSS_FIELDS, why)
        if self.subwords != "first" and self.has_bilstm:
            raise UserError(
                f"subwords={self.subwords!r} cannot be combined with"
                f" config.task.head={self.head!r}, whose BiLSTM reads the first sub-words:"
                " set one of the two to its default."
            )
        if self.overlap == "vote" and self.has_crf:
            raise UserError(
                f"overlap='vote' cannot be combined with config.task.head={self.head!r}, which"
                " decodes the tags of a window together: set config.task.overlap=context."
            )

    @property
    def known_metrics(self) -> tuple[str, ...]:
        return METRICS[self.entities]

    @property
    def by_character(self) -> bool:
        """Whether each character of a plain text is a word."""
        return self.published == "msra_ner"

    @property
    def between_words(self) -> str:
        return "" if self.by_character else " "

    @property
    def view(self) -> tuple[str, str]:
        if self.entities:
            return "Entities", "The entities of a text."
        return "Tags", "The tag of each word."

    def sample(self, example: Any) -> dict[str, Any]:
        return {"text": self.between_words.join(example.words)}

    def read(self, path, counts, labelled) -> Iterator[TaggedExample]:
        columns = _or(parse_column(self.text_a), "tokens"), _or(parse_column(self.label), "tags")
        sentence = parse_column(self.id)
        how = not self.entities, self.strip_numbers, self.by_character, sentence
        is_text = not labelled and ending_of(path) == ".txt"
        if is_text and not self._has_tags(path, *columns, *how):
            return read_plain_words(path, counts, self.by_character)
        return read_tagged(path, counts, labelled, *columns, *how)

    def _has_tags(self, path: str, *how: Any) -> bool:
        """Returns whether a file has columns of words and of entity tags or the task's labels."""
        found = detect_columns(path)
        marks_entities = found is not None and found.fields.get("task.entities", True)
        if found is None or marks_entities or self.entities:
            return marks_entities
        try:
            examples = itertools.islice(read_tagged(path, Counter(), True, *how), 100)
            return {tag for e in examples for tag in e.tags or ()} <= {*self.labels}
        except UserError:
            return False

    def find_labels(self, examples):
        names = Labels.find_tags(tag for e in examples for tag in e.tags or ()).names
        if len(names) == 1:
            raise UserError(f"All words have the tag {names[0]!r}: a tagger needs two.")
        return names

    def encode(self, examples, tokenizer, counts) -> WordRows:
        length, labels = self.max_sequence_length, Labels(self.labels)
        how = (self.document_context, self.stride, self.subwords != "first")
        return encode_words(examples, tokenizer, length, labels, counts, *how)

    def windows(self, examples):
        """Examples that serve as context for each other are never separated."""
        window = []
        for document in documents(examples, self.document_context):
            window += document
            if len(window) >= WINDOW:
                yield window
                window = []
        if window:
            yield window

    def bind(self, model, tokenizer, phase=None, evaluate=False):
        bound = super().bind(model, tokenizer, phase, evaluate)
        return dataclasses.replace(bound, class_loss=ClassLoss.make(self, self.labels))

    def make_model(self) -> TaggingModel:
        return TaggingModel(self.model, len(self.labels), self, self.subwords)

    def example_batch(self) -> dict[str, jax.Array]:
        batch = super().example_batch()
        is_word = jnp.ones_like(batch["input_ids"], dtype=bool)
        if self.subwords != "first":
            batch["word_sizes"] = jnp.ones_like(batch["input_ids"])
        return batch | {"word_positions": batch["position_ids"], "is_word": is_word}

    def losses(self, outputs: TaggingOutputs, batch: Batch) -> Sums:
        """Cross-entropy of each word, or with a CRF the negative log-likelihood of each row.

        The latter is divided by the number of words in all rows that predict any, so that both have
        the same magnitude.
        """
        labels, weights = batch["labels"], batch["weights"]
        if outputs.crf is None:
            return self.class_loss.single("task", outputs.logits, labels, weights)
        likelihood = crf.log_likelihood(outputs.crf, outputs.logits, labels, batch["is_word"])
        weights = batch["is_word"] * weights.max(axis=1, keepdims=True)
        return {"task_loss": Sum(-(likelihood * weights[:, 0]).sum(), weights.sum())}

    def describe(self):
        yield from self.describe_classes()
        yield from super().describe()

    def misfits(self, teacher):
        yield from super().misfits(teacher)
        if teacher.has_crf or self.has_crf:
            yield "and the run cannot be compared if one of them has a CRF: choose another teacher."

    def distilled_losses(self, outputs, teacher, batch, temperature):
        """The divergence of each word's tags; not with a CRF, whose tags depend on each other."""
        values = losses.divergence(outputs.logits, teacher.logits, temperature)
        return {"task_loss": losses.weighted_sum(values, batch["weights"])}

    def answers(self, outputs: TaggingOutputs, batch: Batch) -> dict[str, jax.Array]:
        """The tags of words, with their probabilities; a CRF's are its marginals.

        If several windows vote, the `probabilities` of all tags, [batch, words, classes].
        """
        if outputs.crf is None:
            probabilities = jax.nn.softmax(outputs.logits)
            if self.overlap == "vote":
                return {"probabilities": probabilities}
            tags = probabilities.argmax(-1)
        else:
            sentence = outputs.crf, outputs.logits, batch["is_word"]
            probabilities, tags = crf.marginals(*sentence), crf.decode(*sentence)
        of_tags = jnp.take_along_axis(probabilities, tags[..., None], axis=-1)[..., 0]
        return {"tags": tags, "probabilities": of_tags}

    def collect(self, examples, rows: WordRows, answers):
        """`words`, their `tags` with `probabilities`, and `entities`."""
        merge = _vote if self.overlap == "vote" else _with_most_context
        tags, probabilities = merge(rows, answers)
        predictions = []
        for number, example in enumerate(examples):
            here = slice(*rows.example_starts[number : number + 2].tolist())
            names = [self.labels[tag] for tag in tags[here]]
            sure = probabilities[here].tolist()
            prediction: Prediction = {"id": example.id, "words": list(example.words), "tags": names}
            if self.entities:
                prediction["entities"] = self._find_entities(example, names, sure)
            predictions.append(prediction | {"probabilities": sure})
        return predictions

    def _find_entities(
        self, example: TaggedExample, tags: Sequence[str], probabilities: Sequence[float]
    ) -> list[dict[str, Any]]:
        """Returns the entities in order; an imported model's tags may follow any scheme.

        `start` and `end` are character offsets in the text, or in the joined words if there is
        none; `probability` is the mean of those of the tags.
        """
        found = sorted(entity_scores.entities(as_iob2(tags)), key=lambda entity: entity[1])
        text, spans = example.locate(self.between_words)
        return [
            {
                "type": kind,
                "text": text[spans[first][0] : spans[last][1]],
                "start": spans[first][0],
                "end": spans[last][1],
                "probability": statistics.fmean(probabilities[first : last + 1]),
                "first_word": first,
                "last_word": last,
            }
            for kind, first, last in found
        ]

    def counts(self, examples, predictions):
        gold, found = tags_of(examples, predictions)
        if self.entities:
            return entity_scores.entity_counts(gold, found)
        words = (list(itertools.chain.from_iterable(tags)) for tags in (gold, found))
        return scores.class_counts(*words)

    def error(self, examples, predictions, metric):
        """By bootstrap over the sentences, from the counts of each."""
        return error_of_counts(*_sentence_counts(examples, predictions, metric))

    def difference_error(self, examples, predictions, others, metric):
        theirs, _ = _sentence_counts(examples, others, metric)
        return error_of_counts(*_sentence_counts(examples, predictions, metric), theirs)

    def review(self, examples, predictions):
        return make_review(self, examples, predictions)

    TABLES_OF_EXAMPLES = True

    has_tables = True

    def example_row(self, example):
        return {"id": example.id, "text": example.locate(self.between_words)[0]}

    def cells(self, prediction):
        if self.entities:
            names = ("type", "entity", "start", "end", "probability")
            found = prediction["entities"]
            values = [(e["type"], e["text"], e["start"], e["end"], e["probability"]) for e in found]
        else:
            names = ("word", "tag", "probability")
            of_words = (prediction[name] for name in ("words", "tags", "probabilities"))
            values = list(zip(*of_words, strict=True))
        return [dict(zip(names, row, strict=True)) for row in values] or [dict.fromkeys(names)]

    def score(self, examples, predictions):
        """Entity-level scores as in conlleval, with `TYPE_f1`; for other tags, the accuracy."""
        gold, found = tags_of(examples, predictions)
        if not self.entities:
            return {"accuracy": entity_scores.token_accuracy(gold, found)}
        by_type = entity_scores.entity_counts(gold, found)
        total = scores.micro(by_type)
        values = {
            "f1": total.f1,
            "precision": total.precision,
            "recall": total.recall,
            "accuracy": entity_scores.token_accuracy(gold, found),
        }
        ordered = {name: values.pop(name) for name in self.metrics}
        return ordered | values | {f"{name}_f1": count.f1 for name, count in by_type.items()}

    def balanced_weights(self, examples):
        counts = Counter(tag for example in examples for tag in example.tags or ())
        weights = balanced_weights([counts[name] for name in self.labels])
        return dict(zip(self.labels, weights, strict=True))

    def predict_without_encoder(self, train, examples):
        """The most frequent tag of each word."""
        sentences = ((example.words, example.tags or ()) for example in train)
        found = bag_of_words.tag_words(sentences, [example.words for example in examples])
        return [{"tags": tags} for tags in found]

    def baseline(self, examples):
        if self.metrics[0] != "accuracy":
            return 0.0  # no entity at all
        tags = [tag for example in examples for tag in example.tags or ()]
        return scores.majority_class_score(scores.accuracy, np.array(tags))


def _sentence_counts(
    examples: Sequence[Any], predictions: Sequence[Any], metric: str
) -> tuple[list[scores.Counts], str]:
    """Returns the counts of each sentence, and which score of their sum is the metric."""
    pairs = zip(*tags_of(examples, predictions), strict=True)
    if metric == "accuracy":
        right = ((sum(map(operator.eq, *pair)), *map(len, pair)) for pair in pairs)
        return [scores.Counts(*row) for row in right], "precision"
    return [scores.micro(entity_scores.entity_counts([g], [f])) for g, f in pairs], metric


def _with_most_context(rows: WordRows, answers: Sequence[Answer]) -> tuple[np.ndarray, np.ndarray]:
    """Returns int32[words] tags, float32[words] probabilities, from the row that predicts each."""
    num_words = int(rows.example_starts[-1])
    tags, probabilities = np.zeros(num_words, np.int32), np.zeros(num_words, np.float32)
    for row, answer in enumerate(answers):  # a sentence may take several rows
        places, words = rows.predicted_words(row)
        tags[words] = answer["tags"][places]
        probabilities[words] = answer["probabilities"][places]
    return tags, probabilities


def _vote(rows: WordRows, answers: Sequence[Answer]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the same, from the mean of the probabilities of all rows that show a word."""
    num_words, num_tags = int(rows.example_starts[-1]), answers[0]["probabilities"].shape[-1]
    total, counts = np.zeros((num_words, num_tags)), np.zeros((num_words, 1))
    for row, answer in enumerate(answers):
        words = rows.words_of(row)
        total[words] += answer["probabilities"][: len(words)]
        counts[words] += 1
    mean = (total / np.maximum(counts, 1)).astype(np.float32)
    return mean.argmax(axis=1).astype(np.int32), mean.max(axis=1)


def _or(column: str | int | None, default: str) -> str | int:
    return default if column is None else column
