"""Checks a machine, a configuration, its data and its time before a run: findings, and fixes."""
