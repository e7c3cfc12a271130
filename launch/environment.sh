# shellcheck shell=bash
# Sourced by the other scripts: creates and activates the virtual environment .venv of this checkout.
#
#   EXTRAS="cuda zstd" PYTHON=python3.12 source launch/environment.sh
#   EXTRAS=beam VENV=.venv-beam CONSTRAINTS=constraints-beam.txt source launch/environment.sh
#
# EXTRAS are extras of setup.py (default: none); PYTHON is the interpreter, 3.11 or later, with the
# extra cuda 3.12 or later (default: the first one found). Versions are those of constraints.txt, or of
# constraints-cuda.txt once there is the extra cuda, or of CONSTRAINTS; VENV is another folder than .venv.
# Installed extras are not installed again; an environment that is incomplete, moved or of other versions
# is replaced. Sets `root`, the checkout, and `run COMMAND ...`, which only prints the command if dry_run
# is set.

venv=${VENV:-.venv}
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || return 1

run() {
  if [[ -n ${dry_run:-} ]]; then printf '%q ' "$@" && echo; else "$@"; fi
}

_find_python() { # MINOR, the oldest
  local candidates=(python3 python3.13 python3.12 python3.11) candidate
  if [[ -n ${PYTHON:-} ]]; then candidates=("$PYTHON"); fi
  for candidate in "${candidates[@]}"; do
    "$candidate" -c "import sys; sys.exit(sys.version_info < (3, $1))" 2>/dev/null || continue
    echo "$candidate" && return
  done
  echo "error: no Python 3.$1 or later (${candidates[*]}): install one, or name it: PYTHON=..." >&2
  return 1
}

_make_venv() { # MINOR
  local python
  python=$(_find_python "$1") || return 1
  "$python" -m venv --clear "$venv" >/dev/null 2>&1 && return
  # Some distributions lack ensurepip: then the interpreter's own pip installs one.
  "$python" -m venv --clear --without-pip "$venv" &&
    "$python" -m pip --python "$venv/bin/python" install --quiet pip && return
  echo "error: $python makes no virtual environment: install its venv package (python3-venv)." >&2
  return 1
}

_set_up() (
  cd -- "$root" || exit 1
  constraints=constraints-cuda.txt oldest=12
  state=$({ pwd; cat $constraints setup.py; } | cksum)
  if [[ -n ${CONSTRAINTS:-} || " ${EXTRAS:-} " != *" cuda "* ]] &&
    ! grep -qxF "cuda $state" "$venv/installed" 2>/dev/null; then
    constraints=${CONSTRAINTS:-constraints.txt} oldest=11
    state=$({ pwd; cat "$constraints" setup.py; } | cksum)
  fi
  names=()
  for extra in base ${EXTRAS:-}; do
    grep -qxF "$extra $state" "$venv/installed" 2>/dev/null || names+=("$extra")
  done
  [[ ${#names[@]} -gt 0 ]] || exit 0
  echo "Setting up $venv (a few minutes the first time) ..."
  if [[ ${names[0]} == base ]]; then _make_venv $oldest || exit 1; fi
  # Python compiles what is imported; to compile all modules takes pip minutes.
  pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile)
  pip+=(-c "$constraints")
  # torch first, so that no other package installs another build of it.
  if [[ " ${names[*]} " == *" parity "* ]]; then "${pip[@]}" torch || exit 1; fi
  wanted=$(IFS=,; echo "${names[*]}")
  wanted=${wanted#base} && wanted=${wanted#,}
  # A path of the checkout, which type checkers can follow, and not a finder of modules.
  "${pip[@]}" --config-settings editable_mode=compat --editable ".${wanted:+[$wanted]}" || exit 1
  printf '%s\n' "${names[@]/%/ $state}" >>"$venv/installed"
)

if [[ -z ${dry_run:-} ]]; then
  _set_up || return 1
  # shellcheck source=/dev/null
  source "$root/$venv/bin/activate"
fi
