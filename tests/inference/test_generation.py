"""Text that continues prompts, against a loop that encodes the whole row for every new word."""

import json
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.inference.generation import Generator
from bert_jax.inference.sampling import Sampling, choose
from bert_jax.models.heads import CausalLMModel
from bert_jax.tools.cli import generate
from bert_jax.training.checkpoints import open_chosen
from bert_jax.training.state import make_key
from tests.inference.conftest import open_model

PROMPTS = ["the list", "", "naive una ##ffable returned the list is", "is"]
SAMPLINGS = {
    "greedy": Sampling(greedy=True),
    "sampled": Sampling(temperature=1.3, top_k=12, top_p=0.95),
}


@pytest.fixture(scope="module", params=["gpt:tiny", "left_to_right"])
def workdir(request, make_run):
    return make_run(request.param, model__vocab_size=20)[1]


def slowly(workdir, generator, prompt, sampling, key, count, ends, never):
    """Returns the new ids of one row, encoding it whole for each of them."""
    config = store.load(workdir)
    with open_chosen(workdir, config.checkpoint) as (checkpoints, step):
        params = checkpoints.read_params(step)
    model, ids = CausalLMModel(generator.encoder), prompt.ids.tolist()
    length = len(ids) + count

    @jax.jit
    def logits_of(row):
        places = jnp.arange(length)[None]
        batch = {
            "input_ids": row,
            "position_ids": places,
            "token_type_ids": jnp.zeros_like(row),
            "example_ids": jnp.ones_like(row),  # the mask is causal
        }
        scores: Any = model.apply({"params": params}, batch, deterministic=True)
        return scores.logits()

    new = []
    for number in range(count):
        row = np.zeros((1, length), np.int32)
        row[0, : len(ids)] = ids
        logits = np.array(logits_of(row)[:, len(ids) - 1])
        logits[:, never] = -np.inf
        word = int(choose(sampling, jax.random.fold_in(key, number)[None], jnp.asarray(logits))[0])
        if word in ends:
            break
        new.append(word)
        ids.append(word)
    return new


@pytest.mark.parametrize("name", SAMPLINGS)
def test_the_text_is_that_of_a_loop_without_a_cache(workdir, name):
    """Prompts of different lengths in one batch, two samples each; some rows end early."""
    generator, sampling, count = Generator(open_model(workdir).model), SAMPLINGS[name], 8
    prompts = [generator.prompt(text, count) for text in PROMPTS]
    found = generator.generate(prompts, sampling, max_new_tokens=count, seed=3, num_samples=2)
    tokenizer = generator.tokenizer
    ends = {tokenizer.sep_id}
    never = [tokenizer.pad_id, tokenizer.cls_id, tokenizer.mask_id]
    never += list(range(len(tokenizer.pieces), generator.encoder.padded_vocab_size))
    key, lengths = make_key(3, "generation"), []
    for number, (prompt, new) in enumerate(found):
        assert prompt is prompts[number // 2]
        row_key = jax.random.fold_in(key, number)
        lengths.append(len(new))
        assert new == slowly(workdir, generator, prompt, sampling, row_key, count, ends, never)
    assert len(lengths) == 8
    if name == "sampled":
        assert min(lengths) < count


def test_a_text_depends_on_its_own_row_only(workdir):
    """The first rows are the same without the others, and another seed gives other texts."""
    generator = Generator(open_model(workdir).model)
    prompts = [generator.prompt(text, 8) for text in PROMPTS]

    def texts(prompts, seed=0):
        samples = generator.generate(prompts, Sampling(), max_new_tokens=8, seed=seed)
        return [generator.text(*sample) for sample in samples]

    together = texts(prompts)
    assert texts(prompts) == together
    assert texts(prompts[:2]) == together[:2]
    assert texts(prompts, seed=1) != together


def test_rows_begin_as_in_training(workdir):
    """With the separator in running text, otherwise with [CLS]; the text is without both."""
    config = store.load(workdir)
    generator = Generator(open_model(workdir, config=config).model)
    prompt = generator.prompt("The list", 5)
    marker = 3 if config.data.segments == "running_text" else 2
    assert prompt.ids.tolist() == [marker, 5, 6]
    assert generator.text(prompt, [7]) == "the list is"


def test_the_command_prints_a_text_for_each_sample(workdir, capsys):
    words = ["generate", f"--workdir={workdir}", "--max_new_tokens=6", "The list", "is"]
    generate.main([*words, "--num_samples=2", "--seed=4", "--top_p=0.9"])
    first = capsys.readouterr().out
    texts = [block for block in first.split("\n\n") if block.strip()]
    assert len(texts) == 4
    assert all(text.strip().startswith("the list") for text in texts[:2])
    generate.main([*words, "--num_samples=2", "--seed=4", "--top_p=0.9"])
    assert capsys.readouterr().out == first
    generate.main([*words, "--greedy"])
    assert capsys.readouterr().out.strip().startswith("the list")


def test_special_tokens_that_an_import_made_are_neither_read_nor_written(make_run, tmp_path):
    _, workdir = make_run("gpt:tiny", model__vocab_size=20)
    rows = {"gpt/embeddings/word_embeddings/embedding[17:]": ["[SEP]", "[CLS]"]}
    certificate = {"tensors": {"fresh": [], "fresh_rows": rows}}
    with open(f"{workdir}/certificate.json", "w") as file:
        json.dump(certificate, file)
    generator = Generator(open_model(workdir).model)
    prompt = generator.prompt("the list", 8)
    assert prompt.ids.tolist() == [5, 6]
    samples = list(generator.generate([prompt], Sampling(), max_new_tokens=8, num_samples=20))
    assert all(len(new) == 8 and not {2, 3} & set(new) for _, new in samples)
    message = "The prompt '' has no tokens, and this model has no token that begins a text: give a"
    with pytest.raises(ValueError, match=message):
        generator.prompt("", 8)


BAD = {
    ("--max_new_tokens=38", "the list"): (
        "The prompt 'the list' has 3 tokens, and 38 new ones are above the 40 positions of the"
        " model: set --max_new_tokens=37 or less."
    ),
    ("the " * 50,): "has 51 tokens, and 50 new ones are above the 40 positions of the model: short",
    (): 'Give the beginning of a text, for example "The list is".',
    ("--greedy", "--num_samples=3", "a"): "--greedy gives the same text 3 times: leave out --num_",
    ("--greedy", "--top_k=3", "a"): "--greedy takes the most probable word: leave out",
    ("--top_p=2", "a"): "--top_p=2.0 must be above 0",
    ("--max_new_tokens=0", "a"): "0 must be at least 1",
}


@pytest.mark.parametrize("words, message", BAD.items(), ids=str)
def test_what_cannot_be_generated_is_refused(workdir, words, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        generate.main(["generate", f"--workdir={workdir}", *words])
    assert "\n" not in str(error.value)


def test_a_model_that_reads_both_sides_is_refused(make_run):
    _, workdir = make_run("base")
    message = (
        "is for config.task='pretraining', with config.model.attention_pattern='bidirectional':"
        " only a model"
        " that was trained to predict the next token (config.task='causal_lm') generates text."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        generate.main(["generate", f"--workdir={workdir}", "the list"])
