#!/usr/bin/env bash
# A Google Cloud TPU, one host or many, as a queued resource: requests it or uses the one there is,
# waits until it is active, installs, trains on all workers, and requests it again after a
# preemption; the run resumes from its newest checkpoint.
#
#   NAME=bert ZONE=us-central1-a TYPE=v5litepod-16 \
#     bash launch/tpu_vm.sh [--dry_run] --config=configs/base.py --workdir=gs://BUCKET/base ...
#
# The run is kept in a bucket that the TPU's service account can write to, since the TPU's own disk
# is deleted with it; or in --workdir=/mnt/runs/base, with SHARE=10.0.0.2:/runs, a file share (NFS)
# that is mounted on /mnt/runs. VERSION is the TPU's software (default: Google's for the TYPE); SPOT=1
# requests a preemptible TPU. Google only maintains the Cloud TPU API: TPU7x are on GKE, see jobset.sh.
# Runs the committed files of this checkout. The TPU is not deleted at the end: see the last line.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/flags.sh" "$@"
set -- ${words[@]+"${words[@]}"}
: "${NAME:?the name of the TPU}" "${ZONE:?its zone}" "${TYPE:?its type}"
# docs.cloud.google.com/tpu/docs/runtimes
case $TYPE in
  v2-* | v3-* | v4-*) default=tpu-ubuntu2204-base chips=$((${TYPE##*-} / 2)) ;; # it counts cores
  v5litepod-*) default=v2-alpha-tpuv5-lite chips=${TYPE##*-} ;;
  v5p-*) default=v2-alpha-tpuv5 chips=$((${TYPE##*-} / 2)) ;;
  v6e-*) default=v2-alpha-tpuv6e chips=${TYPE##*-} ;;
  tpu7x* | v7x*)
    echo "error: TYPE=$TYPE is not in the Cloud TPU API: launch/jobset.sh trains on GKE." >&2
    exit 2
    ;;
  *) default="" chips=1 ;;
esac
if [[ -z ${VERSION:=$default} ]]; then
  echo "error: TYPE=$TYPE is none of v2-N, v3-N, v4-N, v5litepod-N, v5p-N, v6e-N: name its software" \
    "by VERSION." >&2
  exit 2
fi
case " $* " in
  *" --workdir"[=' ']gs://*) ;;
  *" --workdir"[=' ']/mnt/runs/*) : "${SHARE:?host:/share, which is mounted on /mnt/runs}" ;;
  *)
    echo "error: --workdir=gs://BUCKET/FOLDER or /mnt/runs/FOLDER is missing: the TPU's own disk is" \
      "deleted with it." >&2
    exit 2
    ;;
esac
tpu() { # GROUP VERB ARGUMENT ...
  local command=(gcloud compute tpus "$@" --zone="$ZONE")
  if [[ -n ${dry_run:-} ]]; then printf '%q ' "${command[@]}" && echo; else "${command[@]}"; fi
}
deletion="gcloud compute tpus queued-resources delete $NAME --force --zone=$ZONE"
fail() {
  echo "error: $*. To delete it: $deletion" >&2 && exit 1
}
request() {
  tpu queued-resources create "$NAME" --node-id="$NAME" --accelerator-type="$TYPE" \
    --runtime-version="$VERSION" ${SPOT:+--spot}
}
state() { # of the request; empty if there is none
  tpu queued-resources list --filter="name~/$NAME\$" --format="value(state.state)" || echo UNKNOWN
}
wait_until_active() {
  local now before=unknown
  while now=$(state) && [[ $now != ACTIVE ]]; do
    [[ $now == "$before" ]] || echo "The TPU is ${now:-not requested}."
    case $now in
      "") request ;;
      SUSPENDED) tpu queued-resources delete "$NAME" --force --quiet ;; # preempted
      FAILED) fail "the request failed: gcloud compute tpus queued-resources describe $NAME" \
        "--zone=$ZONE says why" ;;
    esac
    before=$now && sleep 30
  done
}
archive=$(mktemp) log=$(mktemp)
trap 'rm -f "$archive" "$log"' EXIT

train() { # FLAG ...
  local hosts="" joined="" number command
  [[ -n $dry_run ]] || git -C "$root" archive --output="$archive" HEAD || return 1
  tpu tpu-vm scp "$archive" "$NAME:bert_jax.tar" --worker=all || return 1
  if [[ -z ${dry_run:-} ]]; then
    hosts=$(tpu tpu-vm describe "$NAME" --format="value(networkEndpoints[].ipAddress)") || return 1
  fi
  hosts=${hosts//;/ }
  number="http://metadata.google.internal/computeMetadata/v1/instance/attributes/agent-worker-number"
  number="\$(curl -s -H Metadata-Flavor:Google $number)"
  if [[ $hosts == *" "* ]]; then
    joined="--coordinator=${hosts%% *}:8476 --num_processes=$(wc -w <<<"$hosts" | tr -d ' ')"
    joined="$joined --process_id=$number"
  fi
  # The systems of TPUs come with an older Python.
  command="sudo apt-get update -q && sudo apt-get install -yq nfs-common python3.11-venv"
  if [[ -n ${SHARE:-} ]]; then
    command="$command && sudo mkdir -p /mnt/runs && { mountpoint -q /mnt/runs ||"
    command="$command sudo mount -t nfs $(printf '%q' "$SHARE") /mnt/runs; }"
  fi
  command="$command && mkdir -p bert_jax && tar -xf bert_jax.tar -C bert_jax && cd bert_jax"
  command="$command && export PYTHON=python3.11 EXTRAS='tpu gcs' && source launch/environment.sh"
  command="$command && python -m bert_jax.main $joined $(printf '%q ' "$@")"
  tpu tpu-vm ssh "$NAME" --worker=all --command="$command" | tee "$log"
}

if [[ -n $dry_run ]]; then
  request && train "$@"
  elsewhere=$chips && check_run "$@"
  exit
fi
while true; do
  wait_until_active
  code=0 && train "$@" || code=$?
  if [[ $code == 0 ]]; then break; fi # it is done
  sleep 60 # what takes a TPU away first stops the run, which it saves, and is seen here later
  if ! grep -q "^Stopped by " "$log" && [[ $(state) == ACTIVE ]] &&
    [[ $(tpu tpu-vm describe "$NAME" --format="value(state)") == READY ]]; then
    fail "the run failed, and the TPU is still there: see above"
  fi
done
echo "Done. The TPU costs money until: $deletion"
