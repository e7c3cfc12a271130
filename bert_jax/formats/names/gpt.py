"""Names of GPT's parameters in other programs: one table for each format.

Kernels are [in, out] in both, as here. The kernels of query, key and value are one tensor, side by
side. The softmax over words uses the word embedding table.
"""

from bert_jax.formats.weight_table import NonParameter, WeightRow, WeightTable

_PATH = "gpt/encoder/layer_{i}"
# Tensor of a layer, without its leaf -> our modules in it, in the order of the released files.
_MODULES = {
    "attn/c_attn": ("attention/query", "attention/key", "attention/value"),
    "attn/c_proj": ("attention/output",),
    "ln_1": ("attention/layer_norm",),
    "mlp/c_fc": ("intermediate",),
    "mlp/c_proj": ("output",),
    "ln_2": ("layer_norm",),
}
# The two parts of the released program's table `we`, which are apart in its files. Its special
# tokens are between them and are made anew for each fine-tuning.
POSITIONS, WORDS = "we/positions", "we/words"


def _leaves(tensor: str) -> tuple[tuple[str, str], ...]:
    return (("scale", "g") if tensor.startswith("ln") else ("kernel", "w")), ("bias", "b")


_ROWS = (
    WeightRow("gpt/embeddings/word_embeddings/embedding", WORDS),
    WeightRow("gpt/embeddings/position_embeddings/embedding", POSITIONS),
    *(
        WeightRow(f"{_PATH}/{name}/{ours}", f"h{{i}}/{tensor}/{theirs}", part=(i, len(modules)))
        for tensor, modules in _MODULES.items()
        for i, name in enumerate(modules)
        for ours, theirs in _leaves(tensor)
    ),
)


def _huggingface(row: WeightRow) -> WeightRow:
    """Returns a row in transformers' names."""
    tensors = {WORDS: "tokens_embed.weight", POSITIONS: "positions_embed.weight"}
    module, _, leaf = row.tensor.replace("h{i}", "h.{i}").replace("/", ".").rpartition(".")
    name = tensors.get(row.tensor, f"{module}.{'bias' if leaf == 'b' else 'weight'}")
    return WeightRow(row.path, f"transformer.{name}", row.transform, row.part)


def released_names(num_layers: int) -> tuple[str, ...]:
    """Returns the names of the released program's tensors, in the order of its files."""
    names = [f"{tensor}/{theirs}" for tensor in _MODULES for _, theirs in _leaves(tensor)]
    return (POSITIONS, WORDS, *(f"h{i}/{name}" for i in range(num_layers) for name in names))


OPENAI = WeightTable(rows=_ROWS)
# transformers: OpenAIGPTModel and OpenAIGPTLMHeadModel.
HUGGINGFACE = WeightTable(
    rows=tuple(map(_huggingface, _ROWS)),
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
