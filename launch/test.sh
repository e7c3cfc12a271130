#!/usr/bin/env bash
# Sets up everything and runs all checks: format, lint, imports, types, tests.
#
#   bash launch/test.sh [--dry_run] [PYTEST ARGUMENT ...]
#
# The tests of reports in a browser need Chromium (Debian: apt-get install chromium), and are skipped
# without it; playwright, which drives it, is installed here. Without arguments, those of preparation in
# Apache Beam run too, in an environment of their own (.venv-beam, constraints-beam.txt): Beam needs older
# versions of some packages.
#
# TEST_PROCESSES tests run at a time (default: one for each core).
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/flags.sh" "$@"
set -- ${words[@]+"${words[@]}"}
EXTRAS="${EXTRAS:-} parity test gpt elmo serve docs wandb mlflow"
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
cd -- "$root"

beam_environment() {
  VENV=.venv-beam CONSTRAINTS=constraints-beam.txt EXTRAS="beam pytest"
  # shellcheck source=environment.sh
  source "$root/launch/environment.sh"
}

# pip and pyright take one core each.
if [[ $# -eq 0 ]]; then (beam_environment) & fi
run ruff format --check .
run ruff check .
run lint-imports --no-logo --no-cache
run pyright
wait
# tests/conftest.py makes the groups of the workers, in their order.
run python -m pytest --durations=15 --no-loadscope-reorder -n "${TEST_PROCESSES:-$(getconf _NPROCESSORS_ONLN)}" "$@"

if [[ $# -eq 0 ]]; then
  beam_environment
  run python -m pytest --durations=5 tests/files/test_beam.py tests/data/corpus/test_beam.py
fi
