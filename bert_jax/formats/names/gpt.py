"""Names of GPT's parameters in other programs: one table for each format.

Kernels are [in, out] in both, as here. The kernels of query, key and value are one tensor, side by
side. The softmax over words is the table of word embeddings.
"""

from bert_jax.formats.weight_table import NonParameter, WeightRow, WeightTable

_PATH = "gpt/encoder/layer_{i}"
_TABLES = ("gpt/embeddings/word_embeddings", "gpt/embeddings/position_embeddings")
# Our module -> theirs, in a layer.
_DENSE = {"attention/output": "attn/c_proj", "intermediate": "mlp/c_fc", "output": "mlp/c_proj"}
_NORMS = {"attention/layer_norm": "ln_1", "layer_norm": "ln_2"}
# Names of the released program's variables in a layer, in the order of its files.
_ORDER = (
    "attn/c_attn/w",
    "attn/c_attn/b",
    "attn/c_proj/w",
    "attn/c_proj/b",
    "ln_1/g",
    "ln_1/b",
    "mlp/c_fc/w",
    "mlp/c_fc/b",
    "mlp/c_proj/w",
    "mlp/c_proj/b",
    "ln_2/g",
    "ln_2/b",
)
# The two parts of the released program's table `we`, which its files have apart. Its special tokens
# are between them and are made anew at each fine-tuning.
POSITIONS, WORDS = "we/positions", "we/words"


def _rows() -> tuple[WeightRow, ...]:
    """Returns the rows in the released program's names."""
    rows = [WeightRow(f"{_TABLES[0]}/embedding", WORDS)]
    rows.append(WeightRow(f"{_TABLES[1]}/embedding", POSITIONS))
    for number, name in enumerate(("query", "key", "value")):
        for leaf, theirs in (("kernel", "w"), ("bias", "b")):
            path = f"{_PATH}/attention/{name}/{leaf}"
            rows.append(WeightRow(path, f"h{{i}}/attn/c_attn/{theirs}", part=(number, 3)))
    for ours, theirs in _DENSE.items():
        rows.append(WeightRow(f"{_PATH}/{ours}/kernel", f"h{{i}}/{theirs}/w"))
        rows.append(WeightRow(f"{_PATH}/{ours}/bias", f"h{{i}}/{theirs}/b"))
    for ours, theirs in _NORMS.items():
        rows.append(WeightRow(f"{_PATH}/{ours}/scale", f"h{{i}}/{theirs}/g"))
        rows.append(WeightRow(f"{_PATH}/{ours}/bias", f"h{{i}}/{theirs}/b"))
    return tuple(rows)


def _huggingface(row: WeightRow) -> WeightRow:
    """Returns a row in transformers' names."""
    tensors = {WORDS: "tokens_embed.weight", POSITIONS: "positions_embed.weight"}
    module, _, leaf = row.tensor.replace("h{i}", "h.{i}").replace("/", ".").rpartition(".")
    name = tensors.get(row.tensor, f"{module}.{'bias' if leaf == 'b' else 'weight'}")
    return WeightRow(row.path, f"transformer.{name}", row.transform, row.part)


def released_names(num_layers: int) -> tuple[str, ...]:
    """Returns the names of the released program's tensors, in the order of its files."""
    layers = (f"h{i}/{name}" for i in range(num_layers) for name in _ORDER)
    return (POSITIONS, WORDS, *layers)


OPENAI = WeightTable(rows=_rows())
# transformers: OpenAIGPTModel and OpenAIGPTLMHeadModel.
HUGGINGFACE = WeightTable(
    rows=tuple(map(_huggingface, OPENAI.rows)),
    # The reasons are stored in certificate.json.
    non_parameters=(
        NonParameter(
            r"lm_head\.weight",
            "the table of word embeddings once more",
            "transformer.tokens_embed.weight",
        ),
        NonParameter(r"transformer\.h\.\d+\.attn\.bias", "the causal mask", "lower_triangle"),
        NonParameter(r"transformer\.position_ids", "the numbers 0, 1, 2 ...", "arange"),
    ),
    old_names=((r"^(?=(h|tokens_embed|positions_embed|position_ids)(\.|$))", "transformer."),),
)
# By the names of bert_jax.formats.FORMATS.
TABLES = {"huggingface": HUGGINGFACE, "openai": OPENAI}
