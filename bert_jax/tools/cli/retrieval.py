"""Search by the vectors of a trained model: how good it is, and pairs to train a better one.

    bert_jax retrieval evaluate FOLDER --model=MODEL               nDCG@10, MRR@10 of a set
    bert_jax retrieval mine PAIRS --model=MODEL --output=FILE      pairs with hard negatives

Add --help to one of them for its flags.
"""

import argparse

from bert_jax.tools.cli.command_line import CACHE, MODEL, Flag, prepare_process
from bert_jax.tools.outputs.files import check_output, write_objects

KIND = "retrieval command"


def evaluate(flags: argparse.Namespace) -> None:
    """Prints how well a model finds the relevant documents of queries, beside TF-IDF.

        bert_jax retrieval evaluate scifact --model=MODEL
        bert_jax retrieval evaluate scifact --model=MODEL --reranker=CROSS_ENCODER

    The folder has the form of BEIR: corpus.jsonl with _id, title and text, queries.jsonl with _id
    and text, qrels/test.tsv with a query, a document and a score a line. Vectors are those that the
    model was trained to give: dense, sparse or one of each token. A cross-encoder orders the best
    documents again. Of equal scores, those of relevant documents come last.
    """
    from bert_jax.data.retrieval_set import read_retrieval_set
    from bert_jax.inference.search import evaluate_retrieval

    data = read_retrieval_set(flags.folder)
    print(f"{len(data.queries):,} queries, {len(data.documents):,} documents")
    reranker = _load(flags, flags.reranker) if flags.reranker else None
    found = evaluate_retrieval(_load(flags, flags.model), data, reranker, flags.depth)
    names = list(found["model"])
    print(f"{'':<10}", *(f"{name:>14}" for name in names))
    for row, scores in found.items():
        print(f"{row:<10}", *(f"{scores[name]:>14.4f}" for name in names))


def mine(flags: argparse.Namespace) -> None:
    """Writes pairs with hard negatives: the texts of other pairs that match best.

        bert_jax retrieval mine pairs.tsv --model=MODEL --output=triplets.jsonl

    The output has a JSON object with anchor, positive and negative a line, which finetune reads
    for the tasks embedding, splade, colbert and cross_encoder. Mine the evaluation file by itself.
    """
    check_output(flags.output, (".jsonl", ".parquet"), [flags.pairs])
    from bert_jax.inference.search import mine_negatives

    model = _load(flags, flags.model)
    choices = {"negatives": flags.negatives, "skip": flags.skip, "at_most": flags.at_most}
    triplets = mine_negatives(model, flags.pairs, **choices)
    write_objects(flags.output, triplets)
    print(f"{len(triplets):,} triplets in {flags.output}")


def _load(flags: argparse.Namespace, path: str):
    prepare_process(flags.compilation_cache)
    from bert_jax.inference.model import load

    return load(path)


COMMANDS = {
    "evaluate": (
        evaluate,
        (
            Flag("FOLDER", "", "Retrieval set in the form of BEIR.", missing="a retrieval set"),
            MODEL,
            Flag("reranker", "", "A cross-encoder that orders the best documents again."),
            Flag("depth", 100, "Documents of a query that it orders.", minimum=1),
            CACHE,
        ),
    ),
    "mine": (
        mine,
        (
            Flag("PAIRS", "", "File with pairs of texts.", missing="a file with pairs of texts"),
            MODEL,
            Flag("output", "", "File to write, .jsonl or .parquet.", missing="the file to write"),
            Flag("negatives", 1, "Triplets of a pair.", minimum=1),
            Flag("skip", 0, "Best candidates to leave out.", minimum=0),
            Flag(
                "at_most",
                0.95,
                "A negative's similarity is at most this part of the pair's; 0: any.",
            ),
            CACHE,
        ),
    ),
}
