#!/usr/bin/env bash
# One process on a server with NVIDIA GPUs (CUDA 13 driver); it uses all of them.
#
#   bash launch/gpu_server.sh [--dry_run] --config=configs/base.py --workdir=DIR \
#       --config.dtype=bfloat16 --config.model.pad_vocab_to_multiple_of=128 [--config.FIELD=VALUE ...]
set -euo pipefail
if [[ ${1:-} == --dry_run ]]; then dry_run=1; shift; fi
EXTRAS="${EXTRAS:-} cuda"
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

# Without this, XLA sums in any order (atomics) and selects kernels by timing them at each start: a
# resumed run would not be bit for bit equal to an uninterrupted one.
flags="--xla_gpu_deterministic_ops=true ${XLA_FLAGS:-}"
run env XLA_FLAGS="$flags" python -m bert_jax.main "$@"
