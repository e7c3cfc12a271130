#!/usr/bin/env bash
# One process on this machine, on CPUs or the devices that EXTRAS supports.
#
#   bash launch/local.sh [--dry_run] --config=configs/base.py --workdir=DIR [--config.FIELD=VALUE ...]
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/flags.sh" "$@"
set -- ${words[@]+"${words[@]}"}
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

run python -m bert_jax.main "$@"
check_run "$@"
