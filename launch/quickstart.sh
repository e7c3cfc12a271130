#!/usr/bin/env bash
# Pre-trains a small encoder on this machine in minutes and lets it fill in some words.
#
#   bash launch/quickstart.sh [--dry_run] [WORKDIR] [--config=FILE] [--config.FIELD=VALUE ...]
#
# Sets up the environment first. WORKDIR defaults to `quickstart`; the same command resumes a run
# that was stopped. FILE defaults to configs/fast.py:plain; configs/tiny.py is BERT-Tiny with the
# paper's recipe. PYTHON and EXTRAS: see environment.sh.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/flags.sh" "$@"
set -- ${words[@]+"${words[@]}"}
workdir=quickstart
if [[ $# -gt 0 && $1 != --* ]]; then workdir=$1; shift; fi
[[ $workdir == /* ]] || workdir=$PWD/$workdir
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

trap 'exit 130' INT # Ctrl-C: the run saves and stops, and so does this script
if [[ " $* " != *" --config"[=' ']* ]]; then set -- --config="$root/configs/fast.py:plain" "$@"; fi
run python -m bert_jax.main --workdir="$workdir" "$@"
check_run --workdir="$workdir" "$@"

echo
echo "Masked tokens of held-out text, and what the model predicts:"
run python -m bert_jax fill_mask --model="$workdir" --held_out=5

quoted=$(printf '%q' "$workdir")
cat <<END

What next:
  enter the environment     cd $(printf '%q' "$root") && source .venv/bin/activate
  ask it something          bert_jax fill_mask --model=$quoted "The [MASK] of the list is returned."
  look at the data          bert_jax prepare --workdir=$quoted --dump=3
  look at the report        $quoted/report.html; also metrics.jsonl, and tensorboard/ with TensorBoard
  evaluate it again         bert_jax evaluate --workdir=$quoted
  train on your own text    bert_jax train --config=configs/fast.py:plain --workdir=DIR --config.data.source=text:YOUR.txt
  train BERT-Base           README.md and launch/README.md
END
