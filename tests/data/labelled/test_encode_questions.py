"""Questions as rows: windows, answers and contexts, against the rules stated slowly."""

import random
from collections import Counter

import numpy as np
import pytest

from bert_jax.data.labelled.encode_questions import encode_questions
from bert_jax.data.labelled.examples import Question
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.text.vocabulary import count_words, train_vocabulary
from tests.data.labelled.letters import PIECES, TOKENIZER

C = {piece: number for number, piece in enumerate(PIECES)}


def encode(questions, length=16, stride=4, max_query_length=64):
    counts = Counter()
    rows = encode_questions(iter(questions), TOKENIZER, length, stride, max_query_length, counts)
    return rows, +counts


def ask(context, answer=None, question="h", is_impossible=False) -> Question:
    answers = () if answer is None else ((answer, context.index(answer)),)
    return Question("q.json, question 7", "7", question, context, answers, is_impossible)


def test_a_batch():
    rows, counts = encode([ask("a b cx d", "cx"), ask("a b", is_impossible=True)])
    batch = rows.take(np.array([1, -1, 0]), 10)
    h, sep = C["h"], 3
    assert batch["input_ids"].tolist() == [
        [2, h, sep, C["a"], C["b"], sep, 0, 0, 0, 0],
        [0] * 10,
        [2, h, sep, C["a"], C["b"], C["c"], C["##x"], C["d"], sep, 0],
    ]
    assert batch["start_positions"].tolist() == [0, 0, 5]
    assert batch["end_positions"].tolist() == [0, 0, 6]
    assert batch["weights"].tolist() == [1, 0, 1]
    names = ("start_positions", "end_positions", "weights")
    dtypes = [batch[name].dtype.name for name in names]
    assert dtypes == ["int32", "int32", "float32"]
    assert not counts


def test_windows_a_stride_apart():
    words = "a b c d e f g a b c d".split()
    rows, counts = encode([ask(" ".join(words), "d e f")], length=10, stride=3)
    batch = rows.take(np.arange(rows.num_rows), 10)
    windows = [[PIECES[i] for i in ids[3:] if i not in (0, 3)] for ids in batch["input_ids"]]
    assert windows == [words[0:6], words[3:9], words[6:11]]
    # The first and the second window contain the whole answer, the third does not.
    assert batch["start_positions"].tolist() == [6, 3, 0]
    assert batch["end_positions"].tolist() == [8, 5, 0]
    assert batch["weights"].tolist() == [1, 1, 1]
    assert rows.example_starts.tolist() == [0, 3] and counts == {"questions_of_several_rows": 1}


@pytest.mark.parametrize("seed", range(4))
def test_every_token_has_one_window_with_most_context(seed):
    rng = random.Random(seed)
    context = " ".join(rng.choices("abcdefgh", k=rng.randint(1, 60)))
    rows, _ = encode([ask(context)], length=rng.randint(8, 20), stride=rng.randint(1, 9))
    windows = rows.windows(0)
    seen = {}
    for window in windows:
        size = len(window.spans)
        for at, (start, _) in enumerate(window.spans.tolist()):
            score = min(at, size - 1 - at) + 0.01 * size
            if start not in seen or score > seen[start][0]:
                seen[start] = (score, window.row)
    assert sorted(seen) == list(range(0, len(context), 2))
    for window in windows:
        best = [seen[start][1] == window.row for start, _ in window.spans.tolist()]
        assert window.is_max_context.tolist() == best


def test_answers_are_the_tokens_that_have_their_characters():
    cases = {
        "1999": ("-1999-", 1, 4),  # marks are separate tokens
        "b": ("a b.", 1, 1),
        "xx": ("a bxx c", 2, 3),  # no word: from its first piece on
        "x c": ("a bx c", 2, 3),
        "国": ("中国文", 1, 1),
        "国文": ("中国文", 1, 2),
        "É c": ("a bÉ c", 1, 2),  # unknown: the whole word
        "c ": ("a c d", 1, 1),
    }
    for answer, (context, first, last) in cases.items():
        rows, counts = encode([ask(context, answer)])
        assert (rows.start_positions[0] - 3, rows.end_positions[0] - 3) == (first, last), answer
        assert not counts


@pytest.fixture(scope="module", params=["train:wordpiece", "train:bpe"])
def trained(request, tmp_path_factory):
    kind = request.param.removeprefix("train:")
    path = tmp_path_factory.mktemp("vocab") / (
        "vocab.txt" if kind == "wordpiece" else "vocab.model"
    )
    texts = ["The quick brown fox, it is said, jumps.", "我们是中国人。我们说中文。"] * 5
    train_vocabulary(kind, count_words(kind, texts, lowercase=True), 120, path)
    return load_tokenizer(path, lowercase=True)


def test_the_tokens_of_any_answer_are_those_that_share_characters_with_it(trained):
    rng = random.Random(0)
    for _ in range(100):
        parts = ["fox", "The", " ", "  ", ",", "jump", "é", "e\u0301", "\u200b", "我们", "国", "☃"]
        context = "".join(rng.choices(parts, k=rng.randint(1, 12)))
        start = rng.randrange(len(context))
        text = context[start : rng.randint(start + 1, len(context))]
        question = Question("", "", "it", context, ((text, start),))
        rows = encode_questions([question], trained, 128, 64, 64, Counter())
        (window,) = rows.windows(0)
        shared = [
            token
            for token, (first, stop) in enumerate(window.spans.tolist())
            if set(range(first, stop)) & set(range(start, start + len(text)))
        ]
        assert rows.fields["weights"][0] == bool(shared)
        if shared:
            found = rows.start_positions[0] - window.first, rows.end_positions[0] - window.first
            assert found == (shared[0], shared[-1])


def test_answers_that_teach_nothing_are_counted():
    questions = [
        Question("", "", "h", "a b", (("z", -1),)),  # not at the offset in the file
        Question("", "", "h", "a \u200b b", (("\u200b", 2),)),  # without a token
        Question("", "", "h", "a b", (("z", -1), ("b", 2))),  # the second is there
        Question("", "", "h", "a b", ()),  # not known
    ]
    rows, counts = encode(questions)
    assert counts == {"questions_not_learned": 2}
    batch = rows.take(np.arange(4), 16)
    assert batch["weights"].tolist() == [0, 0, 1, 0]
    assert batch["start_positions"].tolist() == [0, 0, 4, 0]


def test_an_answer_longer_than_every_window_is_counted():
    rows, counts = encode([ask("a b c d e f g a b", "b c d e f g a")], length=10)
    assert counts == {"answers_in_no_window": 1, "questions_of_several_rows": 1}
    assert not rows.start_positions.any() and rows.fields["weights"].all()


def test_long_questions_are_cut_and_leave_a_quarter_to_the_context():
    questions = [ask("a b c", question="h " * n) for n in (2, 5, 50)]
    rows, counts = encode(questions, length=16, max_query_length=4)
    assert rows.sequences.first_lengths.tolist() == [4, 6, 6]
    assert counts == {"questions_truncated": 2, "tokens_cut_off": 1 + 46}
    rows, _ = encode(questions, length=16, max_query_length=64)
    assert rows.sequences.first_lengths.tolist() == [4, 7, 11]
    assert [len(rows.windows(number)[0].spans) for number in range(3)] == [3, 3, 3]


@pytest.mark.parametrize("context", ["", " ", "\u200b"])
def test_a_context_without_tokens_has_a_row(context):
    rows, _ = encode([ask("a"), ask(context)])
    batch = rows.take(np.array([1]), 8)
    assert batch["input_ids"].tolist() == [[2, C["h"], 3, 3, 0, 0, 0, 0]]
    (window,) = rows.windows(1)
    assert window.spans.shape == (0, 2) and window.is_max_context.shape == (0,)


def test_a_context_is_kept_once_for_its_questions():
    rows, _ = encode([ask("a b", "a"), ask("a b", "b"), ask("c"), ask("a b")])
    assert rows.contexts.tolist() == [0, 0, 1, 2]
    assert rows.context_starts.tolist() == [0, 2, 3, 5]
    assert [w.spans.tolist() for w in rows.windows(2)] == [[[0, 1]]]
