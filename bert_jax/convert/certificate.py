"""The proof that a conversion changed nothing: counts of tensors, a checksum, differences.

{"source": "DIR", "format": "Hugging Face",
 "tensors": {"in": 104, "out": 110, "renamed": {...}, "transposed": [...],
             "known_non_parameters": {...}, "cast": {}, "fresh": [...]},
 "weights_sha256": "...", "notes": [...], "labels": [],
 "comparison": {"with": "transformers 5.23.0", "largest_difference": {"pooled": 4e-7, ...}}}
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bert_jax.convert.parameters import Imported

NAME = "certificate.json"


def make(imported: Imported, comparison: dict[str, Any]) -> dict[str, Any]:
    """The content of certificate.json; `comparison` is that of `comparison.with_source`."""
    source, params, report = imported.source, imported.params, imported.report
    return {
        "source": source.path,
        "format": source.form.name,
        "task": source.task,
        "tensors": {
            "in": len(source.shapes),
            "out": len(params),
            "renamed": report.renamed,
            "transposed": list(report.transposed),
            "known_non_parameters": report.known_non_parameters,
            "cast": report.cast,
            "fresh": list(report.fresh),
        },
        "parameters": sum(array.size for array in imported.own_params.values()),
        "fresh_parameters": sum(params[name].size for name in report.fresh),
        "weights_sha256": weights_sha256(params),
        "notes": list(source.notes),
        "labels": list(source.labels),
        "comparison": comparison,
    }


def weights_sha256(params: Mapping[str, np.ndarray]) -> str:
    """Of names, shapes and float32 bytes (little-endian), in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(params):
        array = np.ascontiguousarray(params[name], "<f4")
        digest.update(f"{name} {list(array.shape)}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


def lines(certificate: dict[str, Any]) -> list[str]:
    """The certificate for people."""
    tensors = certificate["tensors"]
    known = sorted(tensors["known_non_parameters"].items())
    return [
        f"source      {certificate['source']} ({certificate['format']}, {certificate['task']})",
        *(f"note        {note}" for note in certificate["notes"]),
        f"tensors     {tensors['in']} in, {tensors['out']} out; {len(tensors['transposed'])}"
        f" transposed, {len(tensors['renamed'])} under another name than today's",
        f"parameters  {certificate['parameters']:,} of the source,"
        f" {certificate['fresh_parameters']:,} fresh ones",
        *(f"left out    {what}" for what in _grouped(known)),
        *([f"cast        {_casts(tensors['cast'])} to float32"] if tensors["cast"] else []),
        *(f"fresh       {name}" for name in tensors["fresh"]),
        f"weights     sha256 {certificate['weights_sha256']}",
        *comparison_lines(certificate["comparison"]),
    ]


def _grouped(known: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in known:
        by_reason.setdefault(reason, []).append(name)
    return [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}"
        for reason, names in by_reason.items()
    ]


def _casts(cast: dict[str, str]) -> str:
    dtypes = sorted(set(cast.values()))
    return ", ".join(f"{list(cast.values()).count(dtype)} tensors of {dtype}" for dtype in dtypes)


def comparison_lines(comparison: dict[str, Any]) -> list[str]:
    """The largest differences, or why there are none, for people."""
    if reason := comparison.get("none_because"):
        return [f"comparison  none: {reason}"]
    return [
        f"comparison  with {comparison['with']}, largest absolute difference:",
        *(f"  {name:<22} {value:.1e}" for name, value in comparison["largest_difference"].items()),
    ]
