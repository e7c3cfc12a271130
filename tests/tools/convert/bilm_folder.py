"""Folders of bilm-tf with random weights."""

import json
import pathlib

import numpy as np
import pytest

from tests.models import elmo_numpy

FILTERS = ((1, 3), (2, 5), (3, 4))
SIZES = {
    "features": 4,
    "cells": 6,
    "num_layers": 2,
    "filters": FILTERS,
    "character_size": 3,
    "highways": 1,
}
OPTIONS = {
    "lstm": {
        "cell_clip": 3,
        "use_skip_connections": True,
        "n_layers": 2,
        "proj_clip": 3,
        "projection_dim": 4,
        "dim": 6,
    },
    "char_cnn": {
        "embedding": {"dim": 3},
        "filters": FILTERS,
        "n_highway": 1,
        "n_characters": 262,
        "max_characters_per_token": 50,
        "activation": "relu",
    },
}


def make_weights():
    return elmo_numpy.random_weights(np.random.default_rng(0), **SIZES)


def write_folder(path: pathlib.Path, weights=None, vocabulary="", **options) -> pathlib.Path:
    """Writes options.json, lm_weights.hdf5 and, if given, vocab.txt; returns the folder."""
    h5py = pytest.importorskip("h5py", reason="needs the extra elmo")
    path.mkdir(exist_ok=True)
    (path / "options.json").write_text(json.dumps(OPTIONS | options))
    if vocabulary:
        (path / "vocab.txt").write_text(vocabulary)
    with h5py.File(path / "lm_weights.hdf5", "w") as file:
        for name, array in (make_weights() if weights is None else weights).items():
            file[name] = array
    return path
