"""Names that moved to the other modules of this folder; to be removed with its last import."""

# ruff: noqa: F401
from bert_jax.config.checks import check
from bert_jax.config.data import data_config
from bert_jax.config.fields import data_dir, fields, has_corpus, value_of
from bert_jax.config.store import check_workdir, differences, from_json, load, save
