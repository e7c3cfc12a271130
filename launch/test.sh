#!/usr/bin/env bash
# Sets up everything and runs all checks: format, lint, types, tests.
#
#   bash launch/test.sh [PYTEST ARGUMENT ...]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" parity test

ruff format --check .
ruff check .
pyright
python -m pytest -n "${TEST_PROCESSES:-$(nproc)}" "$@"
