"""Layers that encoders are composed of; each file holds one kind of layer."""
