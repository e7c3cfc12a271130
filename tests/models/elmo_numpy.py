"""bilm-tf's forward pass in numpy, float64, from a description of its graph.

Weights have bilm-tf's names and layouts (those of `lm_weights.hdf5`). Everything is a loop over
words, filters and times, so that it shares no idea with the package.
"""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def word_vector(weights, ids, activation=lambda x: np.maximum(x, 0)):
    """The vector of one word from its character numbers, as the batcher of predictions has them."""
    table = np.concatenate([np.zeros((1, weights["char_embed"].shape[1])), weights["char_embed"]])
    characters = table[ids]
    features, i = [], 0
    while f"CNN/W_cnn_{i}" in weights:
        kernel, bias = weights[f"CNN/W_cnn_{i}"][0], weights[f"CNN/b_cnn_{i}"]
        width = len(kernel)
        for n in range(kernel.shape[2]):
            at_times = [
                (characters[t : t + width] * kernel[:, :, n]).sum() + bias[n]
                for t in range(len(ids) - width + 1)
            ]
            features.append(activation(max(at_times)))
        i += 1
    x, i = np.array(features), 0
    while f"CNN_high_{i}/W_carry" in weights:
        scope = f"CNN_high_{i}"
        gate = sigmoid(x @ weights[f"{scope}/W_carry"] + weights[f"{scope}/b_carry"])
        new = np.maximum(x @ weights[f"{scope}/W_transform"] + weights[f"{scope}/b_transform"], 0)
        x, i = gate * new + (1 - gate) * x, i + 1
    if "CNN_proj/W_proj" in weights:
        x = x @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]
    return x


def lstm_layer(weights, direction, layer, inputs, state, clip, skip):
    """The outputs of one layer over one sentence, in the order it reads; and the last state."""
    scope = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
    cell, output = state
    outputs = []
    for x in inputs:
        z = np.concatenate([x, output]) @ weights[f"{scope}/W_0"] + weights[f"{scope}/B"]
        i, j, f, o = np.split(z, 4)
        cell = np.clip(sigmoid(f + 1.0) * cell + sigmoid(i) * np.tanh(j), -clip, clip)
        output = sigmoid(o) * np.tanh(cell)
        if f"{scope}/W_P_0" in weights:
            output = np.clip(output @ weights[f"{scope}/W_P_0"], -clip, clip)
        outputs.append(output + x if skip and layer else output)
    return np.array(outputs), (cell, output)


def encode(weights, words, num_layers, clip=3.0, skip=True, states=None):
    """All states of a sentence: layers x [words, 2 * features]; and the states of each LSTM.

    Args:
      weights: by name.
      words: [words, features], with begin and end of the sentence.
      num_layers: of each direction.
      clip: of cells and of projected outputs.
      skip: whether the layers from the second on add their input.
      states: (direction, layer) -> (cell, output) before the sentence; zeros if missing.
    """
    states = dict(states or {})
    kernel = weights["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"]
    zeros = np.zeros(kernel.shape[1] // 4), np.zeros(words.shape[1])
    layers = [np.concatenate([words, words], axis=1)]
    forward, backward = words, words[::-1]
    for layer in range(num_layers):
        both = []
        for direction, x in ((0, forward), (1, backward)):
            state = states.get((direction, layer), zeros)
            x, state = lstm_layer(weights, direction, layer, x, state, clip, skip)
            states[direction, layer] = state
            both.append(x)
        forward, backward = both
        layers.append(np.concatenate([forward, backward[::-1]], axis=1))
    return layers, states


def random_weights(rng, features, cells, num_layers, filters, character_size, highways):
    """Weights of any size, large enough that clips and gates matter."""
    shapes = {"char_embed": (261, character_size)}
    total = sum(count for _, count in filters)
    for i, (width, count) in enumerate(filters):
        shapes |= {f"CNN/W_cnn_{i}": (1, width, character_size, count), f"CNN/b_cnn_{i}": (count,)}
    for i in range(highways):
        for name in ("carry", "transform"):
            shapes |= {
                f"CNN_high_{i}/W_{name}": (total, total),
                f"CNN_high_{i}/b_{name}": (total,),
            }
    if total != features:
        shapes |= {"CNN_proj/W_proj": (total, features), "CNN_proj/b_proj": (features,)}
    for direction in range(2):
        for layer in range(num_layers):
            scope = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            shapes |= {f"{scope}/W_0": (2 * features, 4 * cells), f"{scope}/B": (4 * cells,)}
            if cells > features:
                shapes[f"{scope}/W_P_0"] = (cells, features)
    return {name: rng.normal(0, 0.7, shape).astype(np.float32) for name, shape in shapes.items()}
