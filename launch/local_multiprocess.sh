#!/usr/bin/env bash
# Several processes on this machine that train together, to try out a run on several hosts.
#
#   PROCESSES=2 bash launch/local_multiprocess.sh [--dry_run] --config=configs/tiny.py --workdir=DIR ...
#
# DEVICES is the number of CPU devices of each process (default: 1); PORT that of process 0 (default:
# a free one). Ctrl-C or SIGTERM stops all processes at the same step, after saving.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/flags.sh" "$@"
set -- ${words[@]+"${words[@]}"}
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
processes=${PROCESSES:-2}
export JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=${DEVICES:-1}
if [[ -z ${PORT:-} ]]; then
  PORT=12321
  [[ -n ${dry_run:-} ]] || PORT=$(python -c "
import socket
with socket.create_server(('localhost', 0)) as server:
    print(server.getsockname()[1])")
fi

pids=()
# The signal to one is enough: they agree on the step at which all stop.
trap 'kill -TERM "${pids[0]}" 2>/dev/null || true' INT TERM
set -m # a process group for each, so that the terminal's Ctrl-C reaches this script alone
for ((i = 0; i < processes; i++)); do
  command=(python -m bert_jax.main --coordinator="localhost:$PORT")
  command+=(--num_processes="$processes" --process_id="$i" "$@")
  if [[ -n ${dry_run:-} ]]; then run "${command[@]}"; continue; fi
  "${command[@]}" &
  pids+=($!)
done
set +m
if [[ -n $dry_run ]]; then
  export JAX_NUM_CPU_DEVICES=$((processes * JAX_NUM_CPU_DEVICES))
  check_run "$@" && exit
fi

# The first failure ends all, since the others would wait for the failed process.
while [[ ${#pids[@]} -gt 0 ]]; do
  sleep 0.5 || true
  running=()
  for pid in "${pids[@]}"; do
    if kill -0 "$pid" 2>/dev/null; then
      running+=("$pid")
    elif wait "$pid"; then
      continue
    else
      status=$?
      if [[ $status == 130 || $status == 143 ]]; then stopped=$status; continue; fi # it has saved
      kill -KILL "${pids[@]}" 2>/dev/null || true
      exit "$status"
    fi
  done
  pids=(${running[@]+"${running[@]}"})
done
exit "${stopped:-0}"
