#!/usr/bin/env bash
# Sets up everything and runs all checks: format, lint, imports, types, tests.
#
#   bash launch/test.sh [--dry_run] [PYTEST ARGUMENT ...]
#
# The tests of reports in a browser need Chromium (Debian: apt-get install chromium), and are skipped
# without it; playwright, which drives it, is installed here. Those of preparation on an engine need the
# extra beam, which does not fit constraints.txt, and are skipped; they run in an environment of their own:
#
#   python3 -m venv DIR && DIR/bin/pip install -e '.[beam]' pytest psutil
#   DIR/bin/python -m pytest tests/data/corpus/test_beam.py tests/files/test_beam.py
#
# TEST_PROCESSES tests run at a time (default: one for each core).
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/flags.sh" "$@"
set -- ${words[@]+"${words[@]}"}
EXTRAS="${EXTRAS:-} parity test gpt elmo serve docs wandb mlflow"
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
cd -- "$root"

run ruff format --check .
run ruff check .
run lint-imports --no-logo --no-cache
run pyright
# tests/conftest.py makes the groups of the workers, in their order.
run python -m pytest --durations=15 --no-loadscope-reorder -n "${TEST_PROCESSES:-$(getconf _NPROCESSORS_ONLN)}" "$@"
