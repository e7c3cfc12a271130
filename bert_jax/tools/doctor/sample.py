"""A sample of a corpus that is not prepared, and what is known of the whole text from it.

Whole chunks of the source are read, from its beginning, until they have READ_BYTES of text; all of
a smaller text is read. Of the documents that were read, every n-th is taken, so that the sample has
about SAMPLE_BYTES, but at least FEWEST documents. The sample is written as a file of sentences and
prepared in a temporary folder by the program itself, each document once (`dupe_factor`=1). Numbers
of rows and bytes are those of the sample times the bytes of the text, divided by the sample's.
"""

import dataclasses
import hashlib
import os
import statistics
from collections import Counter
from collections.abc import Iterable
from typing import Any

from bert_jax.config.data import DataConfig
from bert_jax.files.errors import UserError
from bert_jax.text.lines import Document
from bert_jax.text.sources import Source, make_source

READ_BYTES, SAMPLE_BYTES, FEWEST = 32 << 20, 2 << 20, 8
# A chunk is read to this size; only those of compressed files are larger.
_MOST_BYTES = 2 * READ_BYTES
# Text compressed with gzip has about a third of its size.
_COMPRESSION = 3


@dataclasses.dataclass(frozen=True)
class Sample:
    """What was read of a text.

    Attributes:
      documents: the sample.
      sample_bytes: of its sentences, in UTF-8.
      text_bytes: of the whole text; an estimate, if it was not read.
      is_whole: whether all of the text was read.
      num_documents, num_sentences: that were read.
      duplicates: documents that were read, whose text is that of one before.
      single: documents that were read, of one sentence.
      median_bytes: of the documents that were read.
      repairs: what was repaired or left out, by name.
    """

    documents: list[Document]
    sample_bytes: int
    text_bytes: float
    is_whole: bool
    num_documents: int
    num_sentences: int
    duplicates: int
    single: int
    median_bytes: float
    repairs: dict[str, int]

    @property
    def scale(self) -> float:
        """The bytes of the text, divided by those of the sample."""
        return self.text_bytes / max(1, self.sample_bytes)

    def write(self, path: str) -> None:
        """Writes the documents: a sentence a line, and a blank line after each document."""
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            for document in self.documents:
                file.write("\n".join(" ".join(s.split()) for s in document) + "\n\n")


def take(config: DataConfig) -> Sample:
    """Reads the sample of a corpus.

    Raises:
      UserError: there is no text, or it is malformed and `config.on_bad_text` is `error`.
    """
    source, repairs = make_source(config), Counter()
    documents, sizes, share = _read(source, repairs)
    if not documents:
        raise UserError(f"There is no text in data.source={config.source!r}.")
    total = sum(sizes)
    step = min(max(1, total // SAMPLE_BYTES), max(1, len(documents) // FEWEST))
    digests = {hashlib.sha256("\n".join(document).encode()).digest() for document in documents}
    return Sample(
        documents=documents[::step],
        sample_bytes=sum(sizes[::step]),
        text_bytes=total / share,
        is_whole=share == 1,
        num_documents=len(documents),
        num_sentences=sum(map(len, documents)),
        duplicates=len(documents) - len(digests),
        single=sum(len(document) == 1 for document in documents),
        median_bytes=statistics.median(sizes),
        repairs={name: count for name, count in repairs.items() if count},
    )


def _read(source: Source, repairs: Counter) -> tuple[list[Document], list[int], float]:
    """Returns documents, their bytes, and which part of the text they are, from 0 to 1."""
    documents: list[Document] = []
    sizes: list[int] = []
    total = 0
    chunks = source.chunks()
    weights = [_weight(chunk) for chunk in chunks]
    for number, chunk in enumerate(chunks, 1):
        for document in source.read(chunk, repairs):
            documents.append(document)
            sizes.append(sum(len(s.encode("utf-8", "surrogatepass")) + 1 for s in document))
            total += sizes[-1]
            if total >= _MOST_BYTES:
                return documents, sizes, min(0.99, total / (_COMPRESSION * sum(weights)))
        if total >= READ_BYTES and number < len(chunks):
            return documents, sizes, sum(weights[:number]) / sum(weights)
    return documents, sizes, 1.0


def _weight(chunk: Any) -> float:
    """Returns the bytes of a chunk of files; 1 for chunks of other sources, which are alike."""
    if not (isinstance(chunk, Iterable) and all(hasattr(part, "path") for part in chunk)):
        return 1.0
    return sum(
        (os.path.getsize(part.path) if part.stop is None else part.stop) - part.start
        for part in chunk
    )
