"""The commands of `bert_jax`, one module each.

A module has FLAGS and `run(flags)`, and its docstring is the help text; or it has COMMANDS with the
function and the flags of each of its own commands. What takes long is imported after the flags have
been checked.
"""

# Group of the help -> name of the command and of its module -> what it does.
GROUPS = {
    "train and tune": {
        "finetune": "Fine-tunes a model on a file of labelled examples.",
        "adapt": "Continues the pre-training of a model on your own text.",
        "train": "Trains a model, or resumes a run that was stopped.",
        "evaluate": "Evaluates a run on its held-out data.",
        "sweep": "Runs many trainings that depend on each other, and tabulates their results.",
        "multitask": "Trains several labelled tasks on one encoder, in turns.",
    },
    "use a model": {
        "predict": "Predicts texts, or the examples of files, with a trained model.",
        "encode": "Computes vectors of texts, words or tokens.",
        "fill_mask": "Predicts the [MASK] tokens of texts.",
        "answer": "Answers questions about a text.",
        "generate": "Continues texts, token by token.",
        "score": "Prints or writes pseudo-log-likelihoods of texts.",
        "probe": "Shows what each layer of an encoder knows, by linear classifiers.",
        "retrieval": "Evaluates search by the vectors of a model; mines hard negatives.",
        "serve": "Serves a page and a JSON API of a trained model on this machine.",
        "convert": "Imports, exports, lists and compares checkpoints.",
    },
    "data": {
        "prepare": "Makes a vocabulary and training shards of a corpus.",
        "tokenize": "Prints the ids or the pieces of each line of text.",
    },
    "look": {
        "report": "Writes the report of runs or of a sweep, as an HTML file.",
        "attention": "Shows what attention heads look at, and what layers predict.",
        "squad_metrics": "Scores predictions like the official scripts of SQuAD and CMRC 2018.",
    },
    "scale": {
        "doctor": "Checks a machine and a run before it starts: problems, fixes, memory, time.",
        "completion": "Prints a script that completes commands and flags in bash or zsh.",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
