"""Predictions as readable lines, by the fields that they have."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def readable(example: Any, prediction: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of a prediction, including the example.

    Args:
      example: what was predicted; a dataclass of `data.labelled`.
      prediction: what `Task.collect` returned for it.
    """
    text = " | ".join(filter(None, (getattr(example, n, None) for n in ("text_a", "text_b"))))
    match prediction:
        case {"label": label, "probabilities": probabilities}:
            yield f"{probabilities[label]:6.1%}  {label}   {text}"
        case {"labels": labels, "probabilities": probabilities}:
            found = ", ".join(f"{label} {probabilities[label]:.1%}" for label in labels)
            yield f"  {found or 'none'}   {text}"
        case {"similarity": value} | {"value": value}:
            yield f"{value:10.4f}   {text}"
        case {"choice": choice, "ending": ending, "probabilities": probabilities}:
            yield f"\n{example.context}"
            yield f"{probabilities[choice]:6.1%}  {ending}"
        case {"question": question, "answer": answer, "n_best": n_best}:
            yield f"\n{question}"
            best = next((one for one in n_best if one["text"] == answer), None)
            if not answer or best is None:
                yield "  no answer in the context"
                return
            place = f"characters {best['start']} to {best['end']}"
            yield f"{best['probability']:6.1%}  {answer}   ({place})"
        case {"words": words, "tags": tags}:
            sentence = getattr(example, "text", None) or " ".join(words)
            yield from _tagged(sentence, words, tags, prediction.get("entities"))
        case {"masks": masks, "next_sentence": pair}:
            yield f"\n{text}"
            for candidate in (candidate for mask in masks for candidate in mask["candidates"]):
                yield f"{candidate['probability']:8.1%}  {candidate['token']}"
            if pair:
                yield f"{pair['is_next']:8.1%}  is the next sentence"
        case _:
            values = {name: value for name, value in prediction.items() if name != "id"}
            yield f"{text}\n  {json.dumps(values, ensure_ascii=False)}"


def _tagged(
    sentence: str, words: list[str], tags: list[str], entities: list[Mapping[str, Any]] | None
) -> Iterator[str]:
    if entities is None:
        yield "  ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True))
        return
    yield f"\n{sentence}"
    for entity in entities:
        place = f"characters {entity['start']} to {entity['end']}"
        yield f"{entity['probability']:8.1%}  {entity['type']}  {entity['text']}   ({place})"
    if not entities:
        yield "  no entities"
