#!/usr/bin/env bash
# Several hosts of a Kubernetes cluster that has JobSet, one process on each: the hosts of a TPU
# slice on GKE, or nodes with NVIDIA GPUs. Makes a JobSet with kubectl; --dry_run prints it.
#
#   NAME=bert IMAGE=REGISTRY/bert_jax TPU=tpu-v5-lite-podslice TOPOLOGY=4x4 \
#     bash launch/jobset.sh [--dry_run] --config=configs/base.py --workdir=gs://BUCKET/base ...
#   NAME=bert IMAGE=REGISTRY/bert_jax CLAIM=runs HOSTS=2 GPUS=8 \
#     bash launch/jobset.sh [--dry_run] --config=configs/base.py --workdir=/mnt/runs/base ...
#
# IMAGE is built from launch/Dockerfile with EXTRAS="tpu gcs", or cuda, s3. The run is kept in a bucket
# that the pods can write to, by SERVICE_ACCOUNT, their Kubernetes account; or on CLAIM, a
# PersistentVolumeClaim that all pods can write to, mounted on /mnt/runs. A slice has a host for each
# CHIPS (default: 4) of its chips. If a pod fails, all start again and the run resumes, RESTARTS
# (default: 10) times at most; evicted pods save the run and do not count.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/flags.sh" "$@"
set -- ${words[@]+"${words[@]}"}
: "${NAME:?the name of the JobSet}" "${IMAGE:?the container image}"
fail() {
  echo "error: $*" >&2 && exit 2
}
[[ $NAME =~ ^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$ ]] ||
  fail "NAME=$NAME is no name of a JobSet: a letter, then at most 39 lower-case letters, digits and dashes."
case " $* " in
  *" --workdir"[=' '][gs][s3]://*) ;;
  *" --workdir"[=' ']/mnt/runs/*) : "${CLAIM:?the volume claim of the runs}" ;;
  *)
    fail "--workdir=gs://BUCKET/FOLDER, s3://BUCKET/FOLDER or /mnt/runs/FOLDER is missing:" \
      "the disk of a pod is deleted with it."
    ;;
esac

place="" annotations=""
if [[ -n ${TPU:-} ]]; then
  [[ ${TOPOLOGY:-} =~ ^[0-9]+(x[0-9]+)+$ ]] || fail "TOPOLOGY=${TOPOLOGY:-} is no topology, such as 4x4."
  chips=$((${TOPOLOGY//x/*})) per_host=${CHIPS:-4} resource=google.com/tpu
  ((chips % per_host == 0)) || fail "TOPOLOGY=$TOPOLOGY has $chips chips, not a multiple of CHIPS=$per_host."
  hosts=$((chips / per_host))
  place="
            nodeSelector:
              cloud.google.com/gke-tpu-accelerator: $TPU
              cloud.google.com/gke-tpu-topology: $TOPOLOGY"
  annotations="
  annotations: # all hosts are of one slice
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool"
else
  : "${HOSTS:?the number of nodes}" "${GPUS:?the GPUs of each}"
  hosts=$HOSTS per_host=$GPUS resource=nvidia.com/gpu
fi
[[ -z ${SERVICE_ACCOUNT:-} ]] || place="$place
            serviceAccountName: $SERVICE_ACCOUNT"

quoted() { # TEXT: as JSON, in which Kubernetes expands no variable
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"} text=${text//$'\n'/\\n}
  printf '"%s"' "${text//\$/\$\$}"
}
manifest() { # FLAG ...
  cat <<END
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: $NAME$annotations
spec:
  network: {enableDNSHostnames: true, publishNotReadyAddresses: true}
  failurePolicy:
    restartStrategy: BlockingRecreate
    maxRestarts: ${RESTARTS:-10}
    rules:
    - name: evicted
      action: RestartJobSetAndIgnoreMaxRestarts
      onJobFailureReasons: [PodFailurePolicy]
  replicatedJobs:
  - name: hosts
    replicas: 1
    template:
      spec:
        completionMode: Indexed
        completions: $hosts
        parallelism: $hosts
        backoffLimit: 0
        podFailurePolicy:
          rules:
          - {action: FailJob, onPodConditions: [{type: DisruptionTarget, status: "True"}]}
          - {action: FailJob, onExitCodes: {containerName: run, operator: In, values: [143]}}
        template:
          spec:
            restartPolicy: Never
            terminationGracePeriodSeconds: 300$place
            tolerations: [{key: $resource, operator: Exists, effect: NoSchedule}]
            containers:
            - name: run
              image: $(quoted "$IMAGE")
              resources: {limits: {$resource: $per_host}}
              ports: [{containerPort: 8476}]
              volumeMounts: [${CLAIM:+{name: runs, mountPath: /mnt/runs\}, }{name: shm, mountPath: /dev/shm}]
              command:
              - bash
              - -c
              - |
                unset KUBERNETES_SERVICE_HOST # the processes are given: jax need not ask for them
                # Process 1 of a container ignores SIGTERM until it handles it: bash passes it on.
                /bert_jax/.venv/bin/python -m bert_jax.main --coordinator=$NAME-hosts-0-0.$NAME:8476 \\
                  --num_processes=$hosts --process_id=\$JOB_COMPLETION_INDEX "\$@" &
                trap 'stopped=1; kill -TERM \$!' TERM
                code=0 && wait \$! || code=\$?
                if [[ -n \${stopped:-} ]]; then code=0 && wait \$! || code=\$?; fi
                exit \$code
              - bash$(for flag in "$@"; do printf '\n              - ' && quoted "$flag"; done)
            volumes:
            - {name: shm, emptyDir: {medium: Memory}} # for NCCL
END
  [[ -z ${CLAIM:-} ]] || cat <<END
            - {name: runs, persistentVolumeClaim: {claimName: $(quoted "$CLAIM")}}
END
}
if [[ -n $dry_run ]]; then
  manifest "$@"
  elsewhere=$((hosts * per_host)) && check_run "$@"
  exit
fi
manifest "$@" | kubectl create -f -
first="jobset.sigs.k8s.io/jobset-name=$NAME,batch.kubernetes.io/job-completion-index=0"
echo "Its output: kubectl logs -f -l $first"
echo "To stop or remove it, after which the same command resumes: kubectl delete jobset $NAME"
