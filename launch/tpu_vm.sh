#!/usr/bin/env bash
# A Google Cloud TPU, one host or many: creates it or uses the existing one, installs, trains on all
# workers, and starts again after a preemption; the run resumes from its newest checkpoint.
#
#   NAME=bert ZONE=us-central1-a TYPE=v5litepod-16 SHARE=10.0.0.2:/runs \
#     bash launch/tpu_vm.sh [--dry_run] --config=configs/base.py --workdir=/mnt/runs/base ...
#
# SHARE is a file share (NFS, such as Filestore) mounted on /mnt/runs, since the TPU's own disk is
# deleted with it. VERSION is the TPU's software; SPOT=1 requests a preemptible TPU. Runs the
# committed files of this checkout. The TPU is not deleted at the end: see the last line printed.
set -euo pipefail
if [[ ${1:-} == --dry_run ]]; then dry_run=1; shift; fi
: "${NAME:?the name of the TPU}" "${ZONE:?its zone}" "${TYPE:?its type}" "${SHARE:?host:/share}"
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
run() {
  if [[ -n ${dry_run:-} ]]; then printf '%q ' "$@" && echo; else "$@"; fi
}
tpu() { # VERB ARGUMENT ...
  local verb=$1 && shift
  run gcloud compute tpus tpu-vm "$verb" "$@" --zone="$ZONE"
}
describe() { # FIELD
  [[ -n ${dry_run:-} ]] || tpu describe "$NAME" --format="value($1)" 2>/dev/null || true
}
archive=$(mktemp) log=$(mktemp)
trap 'rm -f "$archive" "$log"' EXIT
# The systems of TPUs come with an older Python.
packages='sudo apt-get update -q && sudo apt-get install -yq nfs-common python3.11-venv'
mount='sudo mkdir -p /mnt/runs && { mountpoint -q /mnt/runs || sudo mount -t nfs "$SHARE" /mnt/runs; }'
install='mkdir -p bert_jax && tar -xf bert_jax.tar -C bert_jax && cd bert_jax'
install="$install && source launch/environment.sh"

while true; do
  if [[ $(describe state) != READY ]]; then
    [[ -z $(describe state) ]] || tpu delete "$NAME" --quiet
    tpu create "$NAME" --accelerator-type="$TYPE" --version="${VERSION:-tpu-ubuntu2204-base}" \
      ${SPOT:+--spot} || { sleep 60 && continue; }
  fi
  run git -C "$root" archive --output="$archive" HEAD
  tpu scp "$archive" "$NAME:bert_jax.tar" --worker=all
  hosts=$(describe 'networkEndpoints[].ipAddress') && hosts=${hosts//;/ }
  number='$(curl -s -H Metadata-Flavor:Google'
  number="$number http://metadata.google.internal/computeMetadata/v1/instance/attributes/agent-worker-number)"
  joined=""
  if [[ $hosts == *" "* ]]; then
    joined="--coordinator=${hosts%% *}:8476 --num_processes=$(wc -w <<<"$hosts" | tr -d ' ') --process_id=$number"
  fi
  command="$packages && SHARE=$(printf '%q' "$SHARE") && $mount && export PYTHON=python3.11 EXTRAS=tpu"
  command="$command && $install && python -m bert_jax.main $joined $(printf '%q ' "$@")"
  if tpu ssh "$NAME" --worker=all --command="$command" | tee "$log"; then
    grep -q "^Stopped by " "$log" || break # it is done
  elif [[ $(describe state) == READY ]]; then
    echo "error: the run failed, and the TPU is still there: see above." >&2
    exit 1
  fi
  sleep 60 # what takes a TPU away first sends SIGTERM, at which the run saves and stops
done
echo "Done. The TPU costs money until: gcloud compute tpus tpu-vm delete $NAME --zone=$ZONE"
