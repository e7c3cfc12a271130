"""Using trained models: texts in, vectors, probabilities and predictions out."""
