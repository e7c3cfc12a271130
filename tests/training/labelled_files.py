"""Files of labelled examples whose rule is easily learned, for each task."""

import csv
import json

from tests.tiny import SPECIAL

FILLERS = "the a of moon river stone tree cloud leaf sand hill".split()
SIGNS = "good bad gold silver lead right wrong ann bob rome".split()
VOCABULARY = [*SPECIAL, *FILLERS, *SIGNS, *"?.x"]
NUM_TRAIN, NUM_EVAL = 100, 21  # neither fills its last batch of 8


def filler(rng, least=2, most=18):
    return rng.choices(FILLERS, k=rng.randint(least, most))


def with_words(rng, *words, **sizes):
    """Filler with these words somewhere in it."""
    text = filler(rng, **sizes)
    for word in words:
        text.insert(rng.randint(0, len(text)), word)
    return text


def write_rows(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t").writerows(
            [header, *rows]
        )


def write_texts(path, rng, count):
    """Good or bad; of the numbers, how good; of the labels, which."""
    rows = []
    for number in range(count):
        label = ("good", "bad")[number % 2]
        more = rng.sample(("gold", "silver"), rng.randint(0, 2))
        text = with_words(rng, label, *more, least=1, most=9)
        labels = {"good": "fine|nice", "bad": ""}[label]
        rows.append((" ".join(text), label, labels, 2.5 if label == "good" else -1))
    write_rows(path, ("text_a", "label", "labels", "number"), rows)


def write_words(path, rng, count):
    """Persons of one or two words, and a place."""
    tags = {"ann": "B-PER", "bob": "I-PER", "rome": "B-LOC"}
    sentences = []
    for _ in range(count):
        text = filler(rng, 1, 6) + ["ann", "bob"][: rng.randint(0, 2)] + filler(rng, 1, 6)
        text += ["rome"] * rng.randint(0, 1)
        sentences.append("\n".join(f"{word} {tags.get(word, 'O')}" for word in text))
    path.write_text("\n\n".join(sentences) + "\n")


def write_questions(path, rng, count, least=6, most=26):
    """The answer is what shines, and lead does not."""
    questions = []
    for number in range(count):
        answer = rng.choice(("gold", "silver", "lead"))
        context = " ".join(with_words(rng, answer, least=least, most=most))
        answers = [{"text": answer, "answer_start": context.index(answer)}]
        question = {
            "id": f"q{number}",
            "question": "the good stone ?",
            "answers": [] if answer == "lead" else answers,
            "is_impossible": answer == "lead",
        }
        questions.append({"context": context, "qas": [question]})
    content = {"version": "v2.0", "data": [{"title": "stones", "paragraphs": questions}]}
    path.write_text(json.dumps(content))


def write_pairs(path, rng, count):
    """Pairs are near, 1, if both have the same metal, and otherwise 0; a third text has another."""
    metals, rows = ("gold", "silver", "lead"), []
    for number in range(count):
        first, other = rng.sample(metals, 2)
        second, score = (first, 1) if number % 2 else (other, 0)
        texts = (" ".join(with_words(rng, sign, least=0, most=4)) for sign in (first, second))
        rows.append((*texts, score))
    write_rows(path, ("sentence1", "sentence2", "score"), rows)


def write_choices(path, rng, count):
    rows = []
    for _ in range(count):
        label = rng.randrange(3)
        signs = ["right" if number == label else "wrong" for number in range(3)]
        endings = [" ".join(with_words(rng, sign, least=1, most=5)) for sign in signs]
        rows.append((" ".join(filler(rng, 1, 5)), "the", *endings, label))
    write_rows(path, ("sent1", "sent2", "ending0", "ending1", "ending2", "label"), rows)
