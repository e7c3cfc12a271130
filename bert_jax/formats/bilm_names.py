"""Names of ELMo's parameters in the hdf5 files of bilm-tf."""

from bert_jax.formats.weight_table import WeightRow, WeightTable

# More than any published model has; a row without a parameter is not used.
_MOST_FILTERS, _MOST_HIGHWAYS = 32, 16
_DIRECTIONS = ("forward", "backward")


def _rows() -> tuple[WeightRow, ...]:
    rows = [
        # The graph of predictions adds a row of zeros for padding in front.
        WeightRow("elmo/characters/embedding", "char_embed", "zero_row"),
        WeightRow("elmo/embeddings/word_embeddings/embedding", "embedding"),
    ]
    for i in range(_MOST_FILTERS):
        path = f"elmo/characters/filter_{i}"
        rows.append(WeightRow(f"{path}/kernel", f"CNN/W_cnn_{i}", "first_of_one"))
        rows.append(WeightRow(f"{path}/bias", f"CNN/b_cnn_{i}"))
    for i in range(_MOST_HIGHWAYS):
        for gate in ("carry", "transform"):
            path, scope = f"elmo/characters/highway_{i}/{gate}", f"CNN_high_{i}"
            rows.append(WeightRow(f"{path}/kernel", f"{scope}/W_{gate}"))
            rows.append(WeightRow(f"{path}/bias", f"{scope}/b_{gate}"))
    rows.append(WeightRow("elmo/characters/projection/kernel", "CNN_proj/W_proj"))
    rows.append(WeightRow("elmo/characters/projection/bias", "CNN_proj/b_proj"))
    for number, direction in enumerate(_DIRECTIONS):
        path = f"elmo/{direction}_{{i}}"
        scope = f"RNN_{number}/RNN/MultiRNNCell/Cell{{i}}/LSTMCell"
        rows.append(WeightRow(f"{path}/kernel", f"{scope}/W_0"))
        rows.append(WeightRow(f"{path}/bias", f"{scope}/B"))
        rows.append(WeightRow(f"{path}/projection", f"{scope}/W_P_0"))
    return tuple(rows)


TABLES = {"bilm": WeightTable(_rows())}
