#!/usr/bin/env bash
# One process on this machine, on CPUs or the devices that EXTRAS supports.
#
#   bash launch/local.sh [--dry_run] --config=configs/base.py --workdir=DIR [--config.FIELD=VALUE ...]
set -euo pipefail
if [[ ${1:-} == --dry_run ]]; then dry_run=1; shift; fi
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

run python -m bert_jax.main "$@"
