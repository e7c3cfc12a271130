"""Names of ELMo's parameters in bilm-tf: the datasets of its hdf5 files."""

from bert_jax.formats.weight_table import WeightRow, WeightTable

# More than any published model has; a row without a parameter is not used.
_MAX_FILTERS, _MAX_HIGHWAYS = 32, 16
_CHARACTERS, _LSTM = "elmo/characters", "RNN/MultiRNNCell/Cell{i}/LSTMCell"

_ROWS = (
    # The graph of predictions adds a row of zeros for padding in front.
    WeightRow("elmo/characters/embedding", "char_embed", "zero_row"),
    WeightRow("elmo/embeddings/word_embeddings/embedding", "embedding"),
    *(
        WeightRow(f"{_CHARACTERS}/filter_{i}/{ours}", f"CNN/{theirs}_cnn_{i}", transform)
        for i in range(_MAX_FILTERS)
        for ours, theirs, transform in (("kernel", "W", "first_of_one"), ("bias", "b", "same"))
    ),
    *(
        WeightRow(f"{_CHARACTERS}/highway_{i}/{gate}/{ours}", f"CNN_high_{i}/{theirs}_{gate}")
        for i in range(_MAX_HIGHWAYS)
        for gate in ("carry", "transform")
        for ours, theirs in (("kernel", "W"), ("bias", "b"))
    ),
    WeightRow(f"{_CHARACTERS}/projection/kernel", "CNN_proj/W_proj"),
    WeightRow(f"{_CHARACTERS}/projection/bias", "CNN_proj/b_proj"),
    *(
        WeightRow(f"elmo/{direction}_{{i}}/{ours}", f"RNN_{number}/{_LSTM}/{theirs}")
        for number, direction in enumerate(("forward", "backward"))
        for ours, theirs in (("kernel", "W_0"), ("bias", "B"), ("projection", "W_P_0"))
    ),
)
BILM = WeightTable(_ROWS)
