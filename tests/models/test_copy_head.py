"""The probabilities of a copy head against its formula, one slot and one position at a time."""

import jax
import numpy as np
import pytest

from bert_jax.models.bert import Bert
from bert_jax.models.heads import PreTrainingModel
from tests.models.small import apply, make_config, random_params
from tests.models.test_packing import make_examples, make_rows

MASK, WORDS = 4, 90
CONFIG = make_config(
    num_layers=1, dropout_rate=0.0, attention_dropout_rate=0.0, copy_head=True, biases=False
)
MODEL = PreTrainingModel(CONFIG, next_sentence=False, mask_id=MASK)


@pytest.fixture(scope="module")
def case():
    """Parameters; rows of three examples, of one and of none; an example of [MASK]s and a slot."""
    examples = make_examples(np.random.default_rng(0))
    only_masks = (np.array([MASK, 7, MASK]), np.array([1, 1]), 0)
    batch = make_rows([examples[:3], [examples[3], only_masks], []], 32, 6, 3)
    ids, slots = batch["input_ids"], batch["masked_lm_positions"]
    ids[[0, 0, 1], slots[[0, 0, 1], [0, 3, 1]]] = MASK
    ids[0, [3, 5]] = 11  # a word that is copied from two positions
    return random_params(MODEL, batch, spread=0.5), batch


def rms(x):
    return x / np.sqrt((x**2).mean() + CONFIG.layer_norm_epsilon)


def formula(head, hidden, attended, logits, batch, row, slot):
    """Returns p(word) of the first WORDS words, in double precision."""
    own = batch["masked_lm_positions"][row, slot]
    examples, ids = batch["example_ids"][row], batch["input_ids"][row]
    exp = np.exp(logits[row, slot, :WORDS].astype(np.float64))
    words = exp / exp.sum()
    sources = [
        place
        for place in range(len(ids))
        if examples[place] == examples[own] > 0 and place != own and ids[place] != MASK
    ]
    if not sources:
        return words
    query = rms(hidden[row, own]) @ head["query"]["kernel"]
    keys = [rms(attended[row, place]) @ head["key"]["kernel"] for place in sources]
    scores = np.exp([query @ key / np.sqrt(len(query)) for key in keys])
    z = hidden[row, own] @ head["gate_kernel"] + head["gate_bias"][0]
    gate = 1 / (1 + np.exp(-z))
    found = (1 - gate) * words
    for place, share in zip(sources, scores / scores.sum(), strict=True):
        found[ids[place]] += gate * share
    return found


def test_probabilities_are_the_mixture_of_softmax_and_copies_within_an_example(case):
    params, batch = case
    outputs = apply(MODEL, params, batch)
    attended = apply(Bert(CONFIG), params["bert"], batch).attended
    found = np.exp(jax.jit(lambda x: x.log_probabilities(WORDS))(outputs))
    for row in range(3):
        for slot in range(6):
            states = outputs.hidden, attended, outputs.masked_lm_logits
            expected = formula(params["copy_head"], *states, batch, row, slot)
            np.testing.assert_allclose(found[row, slot], expected, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)


def test_a_new_head_copies_little(case):
    """Merity et al. and See et al. learn the gate; ours begins at sigmoid(-2) = 12 %."""
    head = jax.jit(MODEL.init)(jax.random.key(0), case[1])["params"]["copy_head"]
    assert not head["gate_kernel"].any() and head["gate_bias"] == -2
