"""From text and labelled files to batches, without jax."""
