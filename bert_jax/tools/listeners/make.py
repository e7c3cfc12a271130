"""The listeners of the commands train and evaluate."""

from bert_jax.tools.listeners.reviews import Review
from bert_jax.tools.listeners.tensorboard import TensorBoard
from bert_jax.tools.listeners.terminal import EvaluationTerminal, Terminal
from bert_jax.training.listener import Listener, Listeners


def training_listener() -> Listener:
    """Returns what `train` reports to: the terminal, TensorBoard, evaluation.json."""
    terminal = Terminal()
    return Listeners(terminal, TensorBoard(), Review(terminal.line))


def evaluation_listener() -> Listener:
    """Returns what `evaluate` reports to: the terminal, evaluation.json."""
    terminal = EvaluationTerminal()
    return Listeners(terminal, Review(terminal.line))
