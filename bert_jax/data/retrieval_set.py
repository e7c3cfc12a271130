"""Retrieval sets in the form of BEIR (Thakur et al. 2021, arXiv 2104.08663): a folder with

    corpus.jsonl        {"_id": "d1", "title": "...", "text": "..."}; the title may be missing
    queries.jsonl       {"_id": "q1", "text": "..."}
    qrels/test.tsv      query-id  corpus-id  score, with this header; or qrels.tsv; or lines of
                        TREC: query 0 document score

Parquet files may replace .jsonl. As in BEIR, the text of a document is its title, a space and its
text.
"""

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bert_jax.data.labelled.reading import read_objects
from bert_jax.files.errors import UserError

_ENDINGS = (".jsonl", ".parquet")
_JUDGMENTS = ("qrels/test.tsv", "qrels.tsv", "qrels/dev.tsv", "qrels/train.tsv")


@dataclasses.dataclass(frozen=True)
class RetrievalSet:
    """Queries, documents, and which documents are relevant to a query.

    Attributes:
      queries: id -> text, of the queries with a relevant document.
      documents: id -> text.
      relevant: id of a query -> id of a document -> relevance, above 0.
    """

    queries: Mapping[str, str]
    documents: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, float]]

    def __post_init__(self):
        for query, documents in self.relevant.items():
            if query not in self.queries:
                raise UserError(f"The relevance judgments name an unknown query {query!r}.")
            if absent := next((name for name in documents if name not in self.documents), None):
                raise UserError(f"The relevance judgments name an unknown document {absent!r}.")
        if not self.queries:
            raise UserError("There are no queries with relevant documents.")


def read_retrieval_set(folder: str) -> RetrievalSet:
    """Reads the files of a folder.

    Raises:
      UserError: a file is missing, has another form, or refers to an id that another one lacks.
    """
    relevant = _read_judgments(folder)
    texts = {name: dict(_read_texts(folder, name)) for name in ("queries", "corpus")}
    queries = {name: text for name, text in texts["queries"].items() if name in relevant}
    try:
        return RetrievalSet(queries, texts["corpus"], relevant)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from None


def _read_texts(folder: str, name: str) -> Iterator[tuple[str, str]]:
    paths = [os.path.join(folder, name + ending) for ending in _ENDINGS]
    path = next(filter(os.path.isfile, paths), "")
    if not path:
        raise UserError(f"{folder} has no {name}.jsonl, objects with _id and text.")
    for where, value in read_objects(path, Counter()):
        key = value.get("_id", value.get("id"))
        if key is None or not isinstance(value.get("text"), str):
            raise UserError(f'{where}: write {{"_id": "1", "text": "..."}}.')
        title: Any = value.get("title")
        yield str(key), f"{title or ''} {value['text']}".strip()


def _read_judgments(folder: str) -> dict[str, dict[str, float]]:
    paths = [os.path.join(folder, name) for name in _JUDGMENTS]
    path = next(filter(os.path.isfile, paths), "")
    if not path:
        raise UserError(
            f"{folder} has no {_JUDGMENTS[0]}, lines with a query, a document and a score."
        )
    relevant: dict[str, dict[str, float]] = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            cells = line.split("\t") if "\t" in line else line.split()
            cells = [cell.strip() for cell in cells]
            if not any(cells) or (number == 1 and cells[-1] == "score"):
                continue
            try:
                if len(cells) == 4:  # of TREC, whose second cell is not used
                    del cells[1]
                query, document, score = cells
                value = float(score)
            except ValueError:
                raise UserError(
                    f"{path}, line {number}: write a query, a document and a score, with tabs"
                    " between them."
                ) from None
            if value > 0:
                relevant.setdefault(query, {})[document] = value
    return relevant
