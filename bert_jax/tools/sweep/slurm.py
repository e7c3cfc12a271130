"""The jobs of a sweep as job arrays of SLURM: one array for each stage."""

import shlex
from collections.abc import Sequence

from bert_jax.tools.sweep.jobs import Job, stages


def script(jobs: Sequence[Job], workdir: str, options: Sequence[str], parallel: int) -> str:
    """Returns a shell script that submits the sweep.

    A stage starts when all jobs of the stage before have ended, even if they failed: each job
    checks for itself that what it needs is complete.

    Args:
      jobs: the jobs of a plan that is stored in the workdir.
      workdir: folder on a file system that all nodes share.
      options: options of sbatch, such as --gpus=1.
      parallel: maximum number of jobs of an array that run at the same time; 0: no limit.
    """
    limit = f"%{parallel}" if parallel else ""
    lines = [
        "#!/usr/bin/env bash",
        "# Submits the sweep; run it with bash in the folder that the sweep was made in.",
        "set -euo pipefail",
    ]
    for number, stage in enumerate(stages(jobs)):
        command = ["python", "-m", "bert_jax", "sweep", f"--workdir={workdir}", f"--stage={number}"]
        work = (
            f"srun --ntasks=1 {shlex.join(command)} --number=$SLURM_ARRAY_TASK_ID || code=$?;"
            # 143 and 130: the sweep was stopped by a signal, and its run is saved.
            " if [ ${code:-0} = 143 ] || [ ${code:-0} = 130 ]; then"
            " scontrol requeue ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi; exit ${code:-0}"
        )
        words = ["sbatch", "--parsable", f"--job-name=stage-{number}"]
        words += [f"--array=0-{len(stage) - 1}{limit}", "--signal=TERM@300", "--requeue"]
        words += ["--open-mode=append", *map(shlex.quote, options)]
        if number:
            words.append(f'--dependency="afterany:${{stage{number - 1}%%;*}}"')
        words.append(f"--wrap={shlex.quote(work)}")
        names = ", ".join(f"{i}: {job.name}" for i, job in enumerate(stage))
        lines += ["", f"# {names}", f"stage{number}=$({' '.join(words)})"]
        lines.append(f'echo "stage {number}: job ${{stage{number}%%;*}}"')
    return "\n".join(lines) + "\n"
