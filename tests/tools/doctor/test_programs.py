"""Programs of a run without data: against the arrays and the batches of runs with data."""

import jax
import pytest

from bert_jax.devices import sharding
from bert_jax.optim.make import make_optimizer
from bert_jax.tools.doctor.programs import plan, programs
from bert_jax.training.feed import shapes
from bert_jax.training.open import open_run
from bert_jax.training.run import make_checked_mesh
from bert_jax.training.state import init_state


def bytes_on_a_device(tree) -> int:
    """The bytes that the first device holds of real arrays."""
    first = jax.devices()[0]
    shards = (s for x in jax.tree.leaves(tree) for s in x.addressable_shards if s.device == first)
    return sum(shard.data.nbytes for shard in shards)


@pytest.mark.parametrize("name", ["tiny", "elmo"])
def test_sizes_are_those_of_real_arrays(name, make_plan):
    run = make_plan(name)
    tx, _ = make_optimizer(run.config.optimizer, 100, 10)
    phase = run.phases[0]
    state = init_state(run.task_at(phase), tx, run.mesh, jax.random.key(0), None, phase.batch_size)
    first = programs(run)[0]
    assert first.sizes["parameters"] == bytes_on_a_device(state.params)
    assert first.sizes["optimizer"] == bytes_on_a_device(state.opt_state)


def test_each_phase_with_steps_has_a_step_and_an_evaluation(make_plan):
    run = make_plan(phases=((16, 0.9), (24, 0.0), (32, 0.1, 8)))
    assert [(p.name, p.rows, p.length) for p in programs(run)] == [
        ("step", 16, 16),
        ("evaluation", 16, 16),
        ("step", 8, 32),
        ("evaluation", 8, 32),
    ]
    halves = make_plan(phases=((16, 0.9), (32, 0.1, 8)), microbatch_size=4)
    assert [program.microbatches for program in programs(halves)] == [4, 4, 2, 2]


def test_a_run_on_masked_and_next_tokens_has_steps_of_both_kinds(make_config, tmp_path):
    config = make_config(
        causal_share=0.25, model__next_sentence=False, data__segments="full_sentences", steps=20
    )
    planned = programs(plan(config, make_checked_mesh(config)))
    assert [p.name for p in planned] == ["step", "step on next tokens", "evaluation"]
    assert planned[1].flops > planned[0].flops  # of the head, at all positions
    run = open_run(config, str(tmp_path))
    (phase,) = run.phases
    masked, following = shapes(run, phase)
    made = [run.kind_of_step(phase, step) for step in range(20)]
    assert made.count(masked.kind) == masked.steps and made.count(following.kind) == following.steps
    assert [masked.flops, following.flops] == [p.flops for p in planned[:2]]


def test_the_batch_is_that_of_prepared_data(make_config, tmp_path):
    config = make_config(mesh__data=4, mesh__fsdp=2, data__max_examples_per_row=2)
    run = open_run(config, str(tmp_path))
    phase = run.phases[0]
    real = run.add_fields(run.training_rows(phase).batch(0, 0, phase.batch_size))
    first = programs(plan(config, make_checked_mesh(config)))[0]
    _, batch, *_ = first.arguments
    assert {n: (x.shape, x.dtype) for n, x in batch.items()} == {
        n: (x.shape, x.dtype) for n, x in real.items()
    }
    on_device = sharding.shard_batch(run.mesh, real, phase.batch_size, 0)
    assert first.sizes["batch"] == bytes_on_a_device(on_device)


def test_labelled_files_have_a_gradient_of_their_longest_rows(make_config):
    config = make_config("classification", data__bucket_lengths=(8, 12, 32))
    run = plan(config, make_checked_mesh(config))
    gradient, step, evaluation = programs(run)
    assert (gradient.name, step.name, evaluation.name) == ("gradient", "step", "evaluation")
    (phase,) = run.phases
    lengths = [shape.length for shape in shapes(run, phase)]
    assert gradient.length == evaluation.length == max(lengths) > min(lengths)
