#!/usr/bin/env bash
# One process on a server with NVIDIA GPUs (CUDA 13 driver); it uses all of them.
#
#   [DETERMINISTIC=1] bash launch/gpu_server.sh [--dry_run] --config=configs/base.py --workdir=DIR \
#       --config.dtype=bfloat16 --config.model.pad_vocab_to_multiple_of=128 [--config.FIELD=VALUE ...]
#
# With XLA's fastest settings of those that were measured. DETERMINISTIC=1 makes a resumed run equal to
# an uninterrupted one bit for bit, at a cost that has not been measured: see gpu_flags.sh.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/flags.sh" "$@"
set -- ${words[@]+"${words[@]}"}
EXTRAS="${EXTRAS:-} cuda"
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/gpu_flags.sh"

run env XLA_FLAGS="$xla_flags" python -m bert_jax.main "$@"
check_run "$@"
