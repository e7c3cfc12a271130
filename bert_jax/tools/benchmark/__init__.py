"""Reproducible measurements: `python -m bert_jax benchmark NAME [flags]`."""
