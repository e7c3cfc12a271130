"""Measurements that anyone can repeat: `python -m bert_jax benchmark NAME [flags]`."""
