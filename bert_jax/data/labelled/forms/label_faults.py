"""Faults in the names of labels that a run can be trained with, and that are likely mistakes."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

# Examples of a class below which its score says nothing.
_FEWEST, _SHOWN = 5, 8


def find_faults(labels: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields a description of each fault in the labels of examples.

    Args:
      labels: the names of each example's classes or entity types.
    """
    counts = Counter(name for names in labels for name in names)
    spellings = defaultdict(list)
    for name in sorted(counts):
        spellings["".join(name.split()).casefold()].append(name)
    if alike := [names for names in spellings.values() if len(names) > 1]:
        shown = "; ".join(
            ", ".join(f"{name!r} ({counts[name]:,})" for name in names) for names in alike[:_SHOWN]
        )
        yield f"labels that differ by case or spaces only are classes of their own: {shown}"
    rare = sorted((count, name) for name, count in counts.items() if count < _FEWEST)
    if rare:
        shown = ", ".join(f"{name!r} ({count})" for count, name in rare[:_SHOWN])
        more = ", ..." if len(rare) > _SHOWN else ""
        yield f"{len(rare)} classes have fewer than {_FEWEST} examples: {shown}{more}"
