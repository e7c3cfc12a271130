"""Reproducible measurements, also of other programs: `python -m benchmarks` lists them."""
