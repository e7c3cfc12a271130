"""Reproducible measurements: `bert_jax benchmark NAME [flags]`."""
