"""What the tests of tasks prove.

| property | file |
| --- | --- |
| losses, metrics and gradients in double precision | test_losses |
| losses of classes with weights, smoothing, focal: torch, optax, closed forms | test_class_loss |
| thresholds and temperatures: fitted, reported, used, stored | test_decisions |
| losses of a copy head: those of the full mixture; nothing to copy | test_copying |
| added losses: closed forms; gradients in microbatches and on a mesh | test_auxiliary |
| distillation: closed forms of each loss | test_distillation |
| masks: plain loops, shares, packed rows, meshes | test_masking, test_mask_units |
| evaluations of pre-training have the same masks whatever training masks | test_pretraining |
| answers and losses of heads on the device | test_device_side |
| answers, predictions, scores | test_{classification,tagging,span,multiple_choice} |
| language models: losses, probabilities, messages | test_{causal,bidirectional}_lm |
| embeddings: losses by plain loops; cached gradients; scores | test_embedding |
| fields of config.task | test_heads |

Messages about other settings of tasks are in tests/training/test_finetuning_errors.py.
"""
