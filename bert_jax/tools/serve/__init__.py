"""A trained model behind a local page and a JSON API."""
