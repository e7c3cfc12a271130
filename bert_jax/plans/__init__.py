"""Plans: a run's configuration derived, with reasons, from a model and a file or a text."""
