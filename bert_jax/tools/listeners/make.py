"""The listeners of the commands train and evaluate."""

from bert_jax.tools.listeners.reviews import Review
from bert_jax.tools.listeners.tensorboard import TensorBoard
from bert_jax.tools.listeners.terminal import EvaluationTerminal, Terminal
from bert_jax.tools.listeners.trackers import make_trackers
from bert_jax.training.listener import Listener, Listeners


def training_listener(trackers: str = "", name: str = "") -> Listener:
    """Returns what `train` reports to: the terminal, TensorBoard, trackers, evaluation.json.

    Args:
      trackers: names of trackers, separated by commas.
      name: what the lines on the terminal begin with.

    Raises:
      UserError: a tracker is unknown, or its package is not installed.
    """
    terminal = Terminal(name)
    others = make_trackers(trackers, terminal.line)
    return Listeners(terminal, TensorBoard(), *others, Review(terminal.line))


def evaluation_listener() -> Listener:
    """Returns what `evaluate` reports to: the terminal, evaluation.json."""
    terminal = EvaluationTerminal()
    return Listeners(terminal, Review(terminal.line))
