"""Checkpoints of other programs: in, out, and the proof that nothing changed on the way."""
