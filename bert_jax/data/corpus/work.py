"""A preparation and who does its jobs."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus import jobs
from bert_jax.files.atomic import read_json
from bert_jax.files.beam import Beam
from bert_jax.files.buckets import UNFINISHED
from bert_jax.files.shares import Share
from bert_jax.files.workers import Log, Workers
from bert_jax.text.sources import Source


@dataclasses.dataclass(frozen=True)
class Work:
    """A preparation and who does its jobs.

    Attributes:
      config: what to prepare.
      source: the text of the configuration.
      request: JSON that identifies the data (`request.make_request`).
      data_dir: the folder for the data.
      workers: processes that do the jobs, here or elsewhere.
      log: takes lines of progress.
      share: the share of the jobs that this program does.
    """

    config: DataConfig
    source: Source
    request: dict[str, Any]
    data_dir: str
    workers: Workers | Beam
    log: Log
    share: Share

    def unfinished(self, name: str) -> str:
        """Returns the path of a file or folder of unfinished work."""
        return os.path.join(self.data_dir, UNFINISHED, name)

    @property
    def corpus(self) -> str:
        """The folder of the token store."""
        return self.unfinished("corpus")

    def corpus_counts(self) -> dict[str, Any]:
        return read_json(os.path.join(self.corpus, "counts.json"))

    def do(self, stage: str, all_jobs: Iterable[jobs.Job], results: Sequence[str] = ()) -> bool:
        """Does the jobs of this program's share that are not done.

        Args:
          stage: name of the stage in the log.
          all_jobs: the jobs of all programs.
          results: what the first program makes of all files, which it may remove then; (): they
            are needed as they are.

        Returns:
          Whether this program has to make the results; all files are there.
        """
        by_path = {job.path: job for job in all_jobs}
        mine = {
            path: job.run
            for path, job in by_path.items()
            if self.share.takes(path) and not os.path.exists(path)
        }
        if mine:
            is_tokenized = os.path.exists(self.corpus)
            num_bytes = self.corpus_counts()["bytes"] if is_tokenized else 0
            num_bytes *= len(mine) / len(by_path)
            self.workers.run_stage(stage, mine, num_bytes, self.log)
        if self.share.is_first or not results:
            self.share.wait(by_path, stage, self.log)
            return self.share.is_first
        self.share.wait(results, stage, self.log)
        return False
