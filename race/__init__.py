"""The race: one file that trains an encoder, an evaluator, and the records (program.md)."""
