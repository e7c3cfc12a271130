"""Many runs of the program from one file: what depends on what, in which order, with which result.

Each run is a process of its own; nothing here computes, and nothing imports jax.
"""
