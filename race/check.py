"""Checks an entry of the race: its file, its log, a rerun, and whether it beats the last record.

    python -m race.check race/records/NAME                the rules and the log, in seconds
    python -m race.check race/records/NAME --rerun=3      also runs three seeds of both records

The last record is the best one of the same class that is older. A rerun takes turns between the
two, on this machine; its scores, and not those of the logs, then decide which is better.
"""

import argparse
import pathlib
import re
import statistics
from collections.abc import Iterator, Sequence

from bert_jax.files.errors import UserError
from bert_jax.scores.significance import welch
from bert_jax.tools.cli import command_line
from bert_jax.tools.cli.command_line import Flag
from race.rules import (
    BESIDE,
    CLASSES,
    FIELDS,
    P_VALUE,
    RECORDS,
    SEEDS,
    Result,
    check_file,
    fixed_sums,
    read_results,
    refuse,
    scores,
    sha256,
)
from race.run import describe, find_train, run_seed, summarize

# What README.md says, after "- Who: " and so on.
_ASKED = ("Who", "New")
FLAGS = (
    Flag("FOLDER", "", "Folder of the entry.", missing="the folder of the entry"),
    Flag("rerun", 0, "Seeds that are run again; 0: none.", minimum=0),
)


def parse(words: Sequence[str]) -> argparse.Namespace:
    return command_line.parse("race.check", __doc__, FLAGS, words)


def main(words: Sequence[str]) -> None:
    """Prints whether the entry is valid, and how it compares with the last record.

    Raises:
      UserError: it breaks a rule, its scores do not come again, or it does not beat the record.
    """
    flags = parse(words)
    folder = pathlib.Path(flags.folder)
    results = read_results(folder)
    refuse(folder, find_problems(folder, results))
    print(f"{folder}: {results[0]['class']}, {summarize(scores(results))}")
    before = last_record(folder, results)
    if before:
        print(f"{before}: the last record, {summarize(scores(read_results(before)))}")
    if flags.rerun:
        rerun(folder, before, results, flags.rerun)
    elif before:
        compare(results, read_results(before))
    print("valid")


# ----------------------------------------------------------------------------------------- rules


def find_problems(folder: pathlib.Path, results: Sequence[Result]) -> Iterator[str]:
    """Yields what is wrong with an entry, without running it."""
    yield from check_file(find_train(folder))
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    for name in _ASKED:
        if not re.search(rf"^- {name}: \S", text, re.MULTILINE):
            yield f"README.md has no line that begins with '- {name}: '"
    yield from _check_results(folder, results)


def _check_results(folder: pathlib.Path, results: Sequence[Result]) -> Iterator[str]:
    if missing := {name for result in results for name in FIELDS - result.keys()}:
        yield f"log.jsonl has results without {', '.join(sorted(missing))}"
        return
    seeds = [result["seed"] for result in results]
    if len(seeds) < SEEDS or seeds != list(range(len(seeds))):
        yield f"log.jsonl has the seeds {seeds}, and needs 0, 1, ..., at least {SEEDS}"
        return
    sums = {"train.py": sha256(folder / "train.py"), **fixed_sums()}
    name, machine = results[0]["class"], results[0]["machine"]
    if name not in CLASSES:
        yield f"log.jsonl has the class {name!r}, and needs one of {', '.join(CLASSES)}"
        return
    budget, sums = CLASSES[name], sums | {"class": name, "machine": machine}
    for result in results:
        of = f"seed {result['seed']}"
        for name, value in sums.items():
            if result[name] != value:
                yield f"{of} has another {name}: {result[name]}, not {value}"
        if result["part"] != "report":
            yield f"{of} was evaluated on {result['part']!r}, not on 'report'"
        if budget.cores and not result["machine"].endswith(f", {budget.cores} cores"):
            yield f"{of} ran on {result['machine']}, and the class has {budget.cores} cores"
        if budget.device not in result["machine"]:
            yield f"{of} ran on {result['machine']}, and the class has {budget.device}"
        if result["seconds"] > budget.seconds:
            yield f"{of} took {result['seconds']} s of {budget.seconds:g}"
        if (beside := result["wall"] - result["seconds"]) > BESIDE:
            yield f"{of} took {beside:.0f} s beside its training, and may take {BESIDE:.0f}"


# ------------------------------------------------------------------------------------ comparisons


def last_record(folder: pathlib.Path, results: Sequence[Result]) -> pathlib.Path | None:
    """Returns the folder of the best older record of the class; None: this one is the first."""
    found = {}
    for path in sorted(RECORDS.iterdir()):
        others = read_results(path) if path.is_dir() and path.resolve() != folder.resolve() else []
        is_older = bool(others) and _date(others) < _date(results)
        if is_older and others[0].get("class") == results[0]["class"]:
            found[statistics.mean(scores(others))] = path
    return found[min(found)] if found else None


def _date(results: Sequence[Result]) -> str:
    """Returns when the last run of a log began, in a form that can be compared."""
    return max(result.get("date", "") for result in results)


def rerun(
    folder: pathlib.Path, before: pathlib.Path | None, results: Sequence[Result], seeds: int
) -> None:
    """Runs an entry again, in turns with the record before it, and compares the scores.

    Raises:
      UserError: the scores are worse than those of the log, or no better than the record's.
    """
    again: dict[pathlib.Path, list[Result]] = {path: [] for path in (folder, before) if path}
    for seed in range(seeds):
        for path in list(again)[:: -1 if seed % 2 else 1]:
            _, result = run_seed(find_train(path), results[0]["class"], seed)
            again[path].append(result)
            print(f"{path}: {describe(result)}", flush=True)
    new, logged = scores(again[folder]), scores(results)
    difference = statistics.mean(new) - statistics.mean(logged)
    test = welch(new, logged)
    # A single score has no test.
    is_worse = test.p_value < P_VALUE if test else difference > 4 * statistics.stdev(logged)
    if difference > 0 and is_worse:
        raise UserError(
            f"{folder}: the rerun has {summarize(new)}, and the log {summarize(logged)}: is this"
            f" machine ({again[folder][0]['machine']}) otherwise idle, and as fast as"
            f" {results[0]['machine']}?"
        )
    if before:
        compare(again[folder], again[before])


def compare(results: Sequence[Result], before: Sequence[Result]) -> None:
    """Prints how a record compares with the one before it.

    Raises:
      UserError: it does not beat it, or that cannot be said.
    """
    machines = results[0]["machine"], before[0]["machine"]
    if machines[0] != machines[1]:
        raise UserError(
            f"The logs are of different machines, {machines[0]} and {machines[1]}: compare them"
            f" with --rerun={SEEDS}."
        )
    test = welch(scores(results), scores(before))
    if test is None:
        raise UserError("One seed is no comparison: rerun at least two.")
    print(
        f"{test.difference:+.4f} bits per character against the last record, p = {test.p_value:.2g}"
    )
    if test.difference >= 0 or test.p_value >= P_VALUE:
        raise UserError(
            f"It does not beat the last record with p < {P_VALUE}: with more seeds, smaller"
            " differences are certain."
        )


if __name__ == "__main__":
    command_line.run(main)
