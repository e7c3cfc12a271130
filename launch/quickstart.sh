#!/usr/bin/env bash
# Pre-trains BERT-Tiny on this machine in minutes and asks it to fill in some words.
#
#   bash launch/quickstart.sh [WORKDIR] [--config.FIELD=VALUE ...]
#
# All set-up is done here. WORKDIR is `quickstart` unless given; the same command goes on with a run
# that was stopped.
set -euo pipefail
workdir=quickstart
if [[ $# -gt 0 && $1 != --* ]]; then workdir=$1; shift; fi
[[ $workdir == /* ]] || workdir=$PWD/$workdir
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

python -m bert_jax.main --config=configs/tiny.py --workdir="$workdir" "$@"

echo
echo "Words left out of held-out text, and what the model would put there:"
python -m bert_jax.fill_mask --workdir="$workdir" --held_out=5

cat <<END

What next:
  ask it something          source .venv/bin/activate
                            python -m bert_jax.fill_mask --workdir=$workdir "The [MASK] of the list is returned."
  look at the data          python -m bert_jax.prepare --config=configs/tiny.py --workdir=$workdir --dump=3
  look at the curves        $workdir/metrics.jsonl, and $workdir/tensorboard with TensorBoard
  evaluate it again         python -m bert_jax.main --mode=evaluate --workdir=$workdir
  train on your own text    python -m bert_jax.main --config=configs/tiny.py --workdir=DIR --config.data.source=text:YOUR.txt
  train BERT-Base           README.md and launch/README.md
END
