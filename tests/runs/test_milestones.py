"""Milestones: at the words that were read, kept, as a run that ended there, and exported.

Also what phases read.
"""

import itertools
import json

import numpy as np
import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.files.errors import UserError
from bert_jax.training.open import open_run
from bert_jax.training.train import train
from bert_jax.training.workdir import milestones_of, open_model
from tests.resuming import assert_same_run, assert_same_state, train_in_parts, train_until

SINGLE = {"model__next_sentence": False, "data__segments": "full_sentences"}
TEXTS = ("100 words", "700 words", "1000 words", "1e6 words")


@pytest.fixture(scope="module")
def milestones(make_run):
    """A run of two phases with milestones, and little else that is kept."""
    changes = {"checkpoint__milestones": TEXTS, "data__dir": "", "data__validation_share": 0.0}
    run = make_run(**SINGLE, **changes, checkpoint__keep=1, checkpoint__keep_best=0)
    train(run.config, str(run.workdir))
    return run


def steps_of(run) -> dict[str, int]:
    """Returns the step after which each milestone is nearest, of those that a run reaches."""
    words = len(run.corpus.read_text().split())
    manifest = Manifest.load(str(run.workdir / "data"))
    rows = [manifest.num_rows("train", length) for length in (16, 32)]
    read = [0.0, *itertools.accumulate([words * 8 / rows[0]] * 10 + [words * 8 / rows[1]] * 10)]
    found = {text: int(np.abs(np.array(read) - float(text.split()[0])).argmin()) for text in TEXTS}
    return {text: step for text, step in found.items() if float(text.split()[0]) <= read[-1]}


def steps_in(run) -> list[int]:
    return sorted(int(path.name) for path in run.checkpoints.iterdir() if path.is_dir())


def test_milestones_are_at_the_words_that_were_read_and_nothing_else_is_kept(milestones):
    found = steps_of(milestones)
    assert list(found) == list(TEXTS[:3]) and found[TEXTS[1]] > 10  # in the second phase
    assert steps_in(milestones) == sorted({*found.values(), 20})
    for text, step in found.items():
        seal = json.loads((milestones.checkpoints / f"{step}.sha256.json").read_text())
        assert seal["milestones"] == [text]


def test_a_milestone_is_a_run_that_was_stopped_there(milestones, make_run):
    step = steps_of(milestones)[TEXTS[1]]
    other = make_run(**SINGLE, data__dir=str(milestones.workdir / "data"), data__validation_share=0)
    train_until(step, other.config, other.workdir)
    assert_same_state(milestones.workdir, other.workdir, step)


def test_a_run_with_milestones_resumes_bit_for_bit(milestones, make_run):
    steps = steps_of(milestones)
    values = milestones.values | {"data.dir": str(milestones.workdir / "data")}
    run = make_run(**{name.replace(".", "__"): value for name, value in values.items()})
    first = steps[TEXTS[0]]
    train_in_parts(run.config, run.workdir, first, first + 1, steps[TEXTS[2]] - 1)
    assert steps_in(run) == steps_in(milestones)
    for step in steps_in(run):
        assert_same_state(run.workdir, milestones.workdir, step)
    assert_same_run(run.workdir, milestones.workdir)


def test_all_milestones_are_exported_by_one_command(milestones, tmp_path, capsys):
    command = ["convert", "to_hf", str(milestones.workdir), str(tmp_path), "--nocomparison"]
    run_command([*command, "--milestones"])
    assert "not reached, set later or deleted: 1e6 words" in capsys.readouterr().out
    run_command([*command, "--milestones"])  # keeps them
    assert capsys.readouterr().out.count("exists already") == 3
    names = [f"chck_{words}M" for words in ("0.0001", "0.0007", "0.001")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    for name, step in zip(names, steps_of(milestones).values(), strict=True):
        params = open_model(str(tmp_path / name)).params
        arrays = milestones.arrays(step)
        for path, array in params.items():
            keys = "".join(f"['{part}']" for part in path.split("/"))
            np.testing.assert_array_equal(array, arrays[f"params{keys}"])


def test_milestones_are_not_counted_at_another_pace_than_before(milestones, make_run):
    run = make_run(**{name.replace(".", "__"): x for name, x in milestones.values.items()})
    train_until(3, run.config, run.workdir)
    changes = {"phases": ((16, 0.5, 8), (32, 0.5, 4)), "checkpoint.allow_changes": True}
    with pytest.raises(UserError, match="milestones would count from the first step as if phases"):
        train(run.config.replace(changes), str(run.workdir))
    changes["checkpoint.milestones"] = ()
    train(run.config.replace(changes), str(run.workdir))
    assert "100 words" in milestones_of(str(run.workdir))


def test_a_run_without_milestones_has_none_to_export(finished_here, tmp_path):
    with pytest.raises(UserError, match="has no checkpoints that are milestones: train in another"):
        run_command(["convert", "to_hf", str(finished_here.workdir), str(tmp_path), "--milestones"])


def test_data_without_a_count_of_words_are_refused_and_fit_otherwise(milestones, make_run):
    folder = milestones.workdir / "data"
    manifest = Manifest.load(str(folder))
    words = manifest.content.pop("words")
    manifest.save()
    try:
        with pytest.raises(UserError, match="needs a count of the words of the text"):
            train(milestones.config, str(milestones.workdir))
        config = milestones.config.replace({"checkpoint.milestones": ()})
        assert int(train(config, str(milestones.workdir)).state.step) == 20
    finally:
        manifest.content["words"] = words
        manifest.save()


def test_phases_of_one_length_read_the_corpus_once_in_an_epoch(make_run):
    """Stages of the masks of a phase, and phases with other batches, too."""
    masks = {"data__mask_rounding": "row", "data__mask_stages": 4}
    changes = {
        "phases": ((16, 0.5, 8), (16, 0.5, 4)),
        "epochs": 1.0,
        "model__next_sentence": False,
        "data__segments": "full_sentences",
        "data__dir": "",
        "data__masked_lm_prob": 0.3,
        "data__final_masked_lm_prob": 0.15,
    }
    run = make_run(**masks, **changes)
    opened = open_run(run.config, str(run.workdir))
    assert len(opened.phases) == 4
    numbers = [
        opened.training_rows(phase)._row_numbers(step - phase.data_step)
        for phase in opened.phases
        for step in range(phase.first_step, phase.last_step)
    ]
    num_rows = opened.training[0].rows_per_epoch
    assert sorted(np.concatenate(numbers)[:num_rows]) == [*range(num_rows)]
