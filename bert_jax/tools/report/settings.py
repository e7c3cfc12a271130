"""What a run was: settings that differ from the defaults, devices, versions, checksums."""

import json
from collections.abc import Sequence
from typing import Any

from bert_jax.config.layers import describe_preset
from bert_jax.tools.pages.document import note
from bert_jax.tools.pages.markup import Content, tag
from bert_jax.tools.pages.tables import opened, table
from bert_jax.tools.report.workdir import Workdir, names_of


def settings(run: Workdir) -> list[Content]:
    """Returns the section of one run."""
    usual = type(run.config.task).default_config().fields()
    found = run.config.fields()
    origins = run.starts[0].get("origins", {}) if run.starts else {}
    changed = [
        [name, _shown(value), _shown(usual[name]) if name in usual else "-", origins.get(name, "")]
        for name, value in found.items()
        if name not in usual or value != usual[name]
    ]
    header = ["field", "value", "default", "from"]
    everything = [[name, _shown(value)] for name, value in found.items()]
    return [
        [tag("p", line) for line in describe_preset(run.config)],
        note(
            "The fields that differ from the defaults of the task, and where their values are from:"
            " the configuration's file, a preset, the encoder or init_from, a recipe, or given."
        ),
        table(header, changed, caption="Changed settings", text_columns=4, copy=True),
        opened(
            f"All {len(everything)} settings",
            table(header[:2], everything, caption="All settings", text_columns=2, copy=True),
        ),
        _starts(run),
        _checksums(run),
    ]


def differences(runs: Sequence[Workdir]) -> Content:
    """Returns a table of the fields in which runs differ; none if they do not."""
    flat = [run.config.fields() for run in runs]
    names = sorted({name for values in flat for name in values})
    rows = [
        [name, *(_shown(values[name]) if name in values else "-" for values in flat)]
        for name in names
        if any(values.get(name) != flat[0].get(name) for values in flat)
    ]
    if not rows:
        return note("All settings are equal.")
    header = ["field", *names_of(runs)]
    return table(header, rows, caption="Settings that differ", text_columns=len(header), copy=True)


def _starts(run: Workdir) -> Content:
    """Returns a table with a row for each start, or each of several seeds."""
    starts = [(each.name, start) for each in (run, *run.seeds) for start in each.starts]
    if not starts:
        return note("Devices and versions were not recorded by this version's forerunner.")
    packages = list(starts[-1][1]["versions"])
    header = ["run", "from step", "devices", *packages]
    rows = [
        [name, str(start["step"]), start["devices"], *map(start["versions"].get, packages)]
        for name, start in starts
    ]
    return [
        tag("h3", "Devices and versions"),
        table(header, rows, caption="Starts", text_columns=len(header), copy=True),
    ]


def _checksums(run: Workdir) -> Content:
    rows: list[list[Any]] = []
    if run.manifest:
        source = run.manifest["source"]
        files = source.get("files", ()) if isinstance(source, dict) else ()
        rows += [[f["name"], "source", f["sha256"]] for f in files if "sha256" in f]
        tokenizer = run.manifest["tokenizer"]
        rows.append([tokenizer["name"], "vocabulary", tokenizer["sha256"]])
    data = run.results.get("data")
    if isinstance(data, dict):
        rows += [[item["source"], name, item["sha256"]] for name, item in data.items()]
    for seed in run.members:
        where = f"{seed.name}/" if run.seeds else ""
        rows += [
            [f"{where}checkpoints/{step}.sha256.json", "checkpoint", digest]
            for step, digest in seed.checkpoints.items()
        ]
    if not rows:
        return None
    rows = [[*names, tag("span.code", digest)] for *names, digest in rows]
    header = ["file", "kind", "SHA-256"]
    return opened("Checksums", table(header, rows, caption="Checksums", text_columns=3, copy=True))


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
