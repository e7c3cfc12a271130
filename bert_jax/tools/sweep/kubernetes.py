"""The jobs of a sweep as Jobs of Kubernetes: one indexed Job for each stage.

Kubernetes has no order of Jobs. A pod therefore waits, before it starts, until the runs that it
needs are complete on the shared volume, and fails if one of them has failed.
"""

import json
import re
from dataclasses import dataclass

from bert_jax.files.errors import UserError
from bert_jax.tools.sweep.record import Plan


@dataclass(frozen=True)
class Cluster:
    """What the manifest cannot know.

    Attributes:
      image: container image with the program.
      volume: PersistentVolumeClaim that is mounted at `mount`, and holds the workdir.
      mount: path in the container.
      gpus: of each pod.
      name: prefix of the Jobs.
    """

    image: str = "bert_jax"
    volume: str = "runs"
    mount: str = "/runs"
    gpus: int = 0
    name: str = "sweep"

    def __post_init__(self):
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?", self.name):
            raise UserError(
                f"--job_name={self.name} is no name of a Kubernetes Job: use at most 42 lower-case"
                " letters, digits and dashes."
            )


def manifest(plan: Plan, workdir: str, cluster: Cluster, parallel: int = 0) -> str:
    """Returns a YAML document for each stage, to be applied together with `kubectl apply -f -`.

    Args:
      plan: of the sweep; it must be stored in the workdir.
      workdir: as the containers see it.
      cluster: image, volume, GPUs.
      parallel: pods of a stage at the same time; 0: all.
    """
    documents = []
    for number, jobs in enumerate(plan.stages()):
        names = "\n".join(f"# {i}: {job.name}" for i, job in enumerate(jobs))
        command = (
            "PATH=/bert_jax/.venv/bin:$PATH exec python -m bert_jax sweep"
            f' --workdir="{workdir}" --stage={number} --number="$JOB_COMPLETION_INDEX" --wait'
        )
        documents.append(
            f"# Stage {number}\n{names}\n"
            + _TEMPLATE.format(
                name=f"{cluster.name}-{number}",
                sweep=cluster.name,
                stage=json.dumps(str(number)),
                count=len(jobs),
                parallel=min(parallel or len(jobs), len(jobs)),
                image=json.dumps(cluster.image),
                command=json.dumps(command),
                mount=json.dumps(cluster.mount),
                volume=json.dumps(cluster.volume),
                resources=_resources(cluster.gpus),
            )
        )
    return "---\n".join(documents)


def _resources(gpus: int) -> str:
    return f"{{limits: {{nvidia.com/gpu: {gpus}}}}}" if gpus else "{}"


# 143: the run was stopped by the eviction of its pod, and is saved; it is not counted as a failure.
_TEMPLATE = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  labels: {{sweep: {sweep}, stage: {stage}}}
spec:
  completionMode: Indexed
  completions: {count}
  parallelism: {parallel}
  backoffLimitPerIndex: 1
  maxFailedIndexes: {count}
  podFailurePolicy:
    rules:
    - action: Ignore
      onExitCodes: {{containerName: run, operator: In, values: [130, 143]}}
  template:
    metadata:
      labels: {{sweep: {sweep}, stage: {stage}}}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 300
      containers:
      - name: run
        image: {image}
        command: ["/bin/sh", "-c", {command}]
        resources: {resources}
        volumeMounts:
        - {{name: runs, mountPath: {mount}}}
      volumes:
      - name: runs
        persistentVolumeClaim: {{claimName: {volume}}}
"""
