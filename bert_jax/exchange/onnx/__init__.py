"""Models as ONNX: their jaxpr, operation by operation, and the folder that other programs read."""
