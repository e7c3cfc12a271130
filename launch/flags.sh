# shellcheck shell=bash
# Sourced by the other scripts with their arguments, before anything else:
#
#   source ".../flags.sh" "$@"
#   set -- ${words[@]+"${words[@]}"}
#
# --help prints the head of the script and ends it. --dry_run, wherever it stands, sets `dry_run`.
# `words` are the other arguments. Sets `root`, the checkout. `check_run FLAG ...` checks the flags of
# a training run in a dry run; `elsewhere=N` before it: the run is for N devices of other machines.

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || return 1
words=() dry_run="" elsewhere=""
while [[ $# -gt 0 ]]; do
  case $1 in
    -h | --help)
      sed -n -e '/^#!/d' -e '/^#SBATCH/d' -e '/^# *shellcheck/d' -e '/^#/!q' -e 's/^# \{0,1\}//p' \
        "${BASH_SOURCE[1]}"
      exit 0
      ;;
    --dry_run | --dry-run) dry_run=1 ;;
    --) words+=("$@") && break ;;
    *) words+=("$1") ;;
  esac
  shift
done

_find_requirements() { # prints a Python that has what bert_jax needs
  local names="array_record flax jax ml_collections optax orbax sentencepiece tensorflow_datasets"
  local code="import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, '$names'.split())))"
  local candidate
  for candidate in "$root/.venv/bin/python" ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11; do
    "$candidate" -c "$code" 2>/dev/null || continue
    echo "$candidate" && return
  done
  return 1
}

# Prints what doctor says of a run's settings, on standard error; 2: the flags or the settings are
# wrong. A problem that it finds is no error: the run may be for another machine.
check_run() { # FLAG ...
  [[ -n $dry_run ]] || return 0
  local python flags=() value="" flag code=0 devices=()
  case " $* " in
    *" --mode"[=' ']*) echo "Not checked: a dry run checks training only." >&2 && return ;;
    *" --config"[=' ']*) ;;
    *)
      echo "error: --config is missing: give a file, for example --config=configs/base.py." >&2
      return 2
      ;;
  esac
  if ! python=$(_find_requirements); then
    echo "Not checked: no Python here has what bert_jax requires. launch/local.sh without --dry_run" \
      "sets one up." >&2
    return
  fi
  for flag in "$@"; do # the folder of another machine, or a bucket, says nothing here
    if [[ -n $value ]]; then
      value="" && continue
    elif [[ $flag == --workdir && (-n $elsewhere || " $* " == *" --workdir "[gs][s3]://*) ]]; then
      value=1
    elif [[ $flag != --workdir=* || (-z $elsewhere && $flag != --workdir=[gs][s3]://*) ]]; then
      flags+=("$flag")
    fi
  done
  if [[ -n $elsewhere ]]; then devices=(JAX_PLATFORMS=cpu "JAX_NUM_CPU_DEVICES=$elsewhere"); fi
  echo "doctor on this machine${elsewhere:+, with $elsewhere CPU devices for those of the run}:" >&2
  env PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" ${devices[@]+"${devices[@]}"} \
    "$python" -m bert_jax doctor --nodata "${flags[@]}" >&2 || code=$?
  [[ $code == 1 ]] || return "$code"
}
