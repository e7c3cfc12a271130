#!/usr/bin/env bash
# One process on a server with NVIDIA GPUs (CUDA 13 driver), which it uses all.
#
#   bash launch/gpu_server.sh [--dry_run] --config=configs/base.py --workdir=DIR \
#       --config.dtype=bfloat16 --config.model.pad_vocab_to_multiple_of=128 [--config.FIELD=VALUE ...]
set -euo pipefail
if [[ ${1:-} == --dry_run ]]; then dry_run=1; shift; fi
EXTRAS="${EXTRAS:-} cuda"
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

# Without this, XLA adds up in any order (atomics) and chooses kernels by timing them at each start:
# a resumed run would no longer be bit for bit the one that was not stopped.
flags="--xla_gpu_deterministic_ops=true ${XLA_FLAGS:-}"
run env XLA_FLAGS="$flags" python -m bert_jax.main "$@"
