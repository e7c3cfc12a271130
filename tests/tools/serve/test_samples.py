"""The samples on the page of a fine-tuned model are examples of its evaluation file."""

import json
import pathlib

import pytest

from bert_jax.tasks import default_config
from bert_jax.tools.serve import forms
from bert_jax.tools.serve.forms import prediction_form, with_samples
from docs import pictures

QUESTION = {"id": "1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
SQUAD = {"data": [{"title": "t", "paragraphs": [{"context": "Ann came.", "qas": [QUESTION]}]}]}
FILES = {
    "classification": ("text_a\tlabel\na fine film\tgood\n", [{"text_a": "a fine film"}]),
    "tagging": ("Ann B-PER\ncame O\n", [{"text": "Ann came"}]),
    "span": (json.dumps(SQUAD), [{"context": "Ann came.", "question": "Who?"}]),
    "multiple_choice": (
        "sent1\tsent2\tending0\tending1\tlabel\nAnn came.\tShe\tsat.\tflew.\t0\n",
        [{"context": "Ann came.", "start": "She", "endings": ["sat.", "flew."]}],
    ),
}


def make_form(task, path, **values):
    config = default_config(task).replace({"data.eval": str(path), **values})
    data = config.task
    form = prediction_form(data)
    return form, with_samples(form, config, data)


@pytest.mark.parametrize("task", FILES)
def test_samples_are_examples_of_the_evaluation_file(task, tmp_path):
    content, samples = FILES[task]
    path = tmp_path / ("dev.json" if task == "span" else "dev.txt")
    path.write_text(content)
    form, found = make_form(task, path)
    assert [list(view.samples) for view in found.views] == [samples]
    names = {field.name for field in form.views[0].fields}
    assert all(sample.keys() <= names for sample in samples)


def test_short_texts_of_different_lengths_are_chosen(tmp_path):
    texts = [f"{'very ' * n}good" for n in range(200, 0, -10)]
    (tmp_path / "dev.tsv").write_text("".join(f"{text}\n" for text in ["text_a", *texts]))
    _, form = make_form("classification", tmp_path / "dev.tsv")
    lengths = [len(sample["text_a"]) for sample in form.views[0].samples]
    assert len(lengths) == 3 and lengths == sorted(lengths) and lengths[-1] < 600


@pytest.mark.parametrize("content", [None, b"another\n"])
def test_without_the_file_the_samples_stay(content, tmp_path):
    path = tmp_path / "dev.tsv"
    if content is not None:
        path.write_bytes(content)
    form, found = make_form("classification", path)
    assert found.views == form.views


def test_labels_in_the_picture_of_the_page_are_those_of_today():
    labels = pictures.labels_of(str(pathlib.Path(pictures.__file__).with_name("serve.png")))
    of_this_answer = {"quickstart", "name", "list", "contents", "index", "order"}
    files = pathlib.Path(forms.__file__).parent.glob("*.[pj][ys]")
    source = "".join(path.read_text() for path in files)
    assert len(labels) > 10
    assert not [label for label in labels if label not in source and label not in of_this_answer]
