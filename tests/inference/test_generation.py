"""Text that continues prompts, against a loop that encodes the whole row for every new word."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.inference.generation import Generator, Sampling, choose
from bert_jax.tasks.causal_lm.model import CausalLMModel
from bert_jax.training.checkpoints import open_chosen
from bert_jax.training.state import make_key
from tests.inference.conftest import open_model

PROMPTS = ["the list", "", "naive una ##ffable returned the list is", "is"]
SAMPLINGS = {
    "greedy": Sampling(greedy=True),
    "sampled": Sampling(temperature=1.3, top_k=12, top_p=0.95),
}


@pytest.fixture(scope="module")
def workdir(make_run):
    return make_run("left_to_right", model__vocab_size=20)[1]


@pytest.fixture(scope="module")
def generator(workdir) -> Generator:
    return Generator(open_model(workdir).model)


@pytest.fixture(scope="module")
def logits_of(workdir, generator):
    """Returns a function of ids -> the logits of the next word, from the whole row of 24."""
    config = store.load(workdir)
    with open_chosen(workdir, config) as (checkpoints, step):
        params = checkpoints.read_params(step)
    model = CausalLMModel(generator.encoder)

    @jax.jit
    def scores_of(row):
        # The mask is causal: what follows the ids has no effect on them.
        scores: Any = model.apply({"params": params}, {"input_ids": row})
        return scores.logits()

    def run(ids):
        row = np.zeros((1, 24), np.int32)
        row[0, : len(ids)] = ids
        return np.array(scores_of(row))[:, len(ids) - 1]

    return run


def slowly(logits_of, prompt, sampling, key, count, ends, never):
    """Returns the new ids of one row, encoding it whole for each of them."""
    ids = prompt.ids.tolist()
    for number in range(count):
        logits = logits_of(ids)
        logits[:, never] = -np.inf
        word = int(choose(sampling, jax.random.fold_in(key, number)[None], jnp.asarray(logits))[0])
        if word in ends:
            break
        ids.append(word)
    return ids[len(prompt.ids) :]


@pytest.mark.parametrize("name", SAMPLINGS)
def test_the_text_is_that_of_a_loop_without_a_cache(generator, logits_of, name):
    """Prompts of different lengths in one batch, two samples each; some rows end early."""
    sampling, count = SAMPLINGS[name], 8
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
        assert new == slowly(logits_of, prompt, sampling, row_key, count, ends, never)
    assert len(lengths) == 8
    if name == "sampled":
        assert min(lengths) < count


def test_a_text_depends_on_its_own_row_only(generator):
    """The first rows are the same without the others, and another seed gives other texts."""
    prompts = [generator.prompt(text, 8) for text in PROMPTS]

    def texts(prompts, seed=0):
        samples = generator.generate(prompts, Sampling(), max_new_tokens=8, seed=seed)
        return [generator.text(*sample) for sample in samples]

    together = texts(prompts)
    assert texts(prompts) == together
    assert texts(prompts[:2]) == together[:2]
    assert texts(prompts, seed=1) != together


def test_rows_begin_as_in_training(generator, make_run):
    """With the separator in running text, otherwise with [CLS]; the text is without both."""
    gpt = Generator(open_model(make_run("gpt:tiny", model__vocab_size=20)[1]).model)
    for made, marker in ((generator, 2), (gpt, 3)):
        prompt = made.prompt("The list", 5)
        assert prompt.ids.tolist() == [marker, 5, 6]
        assert made.text(prompt, [7]) == "the list is"


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
