"""Extracts English prose from docstrings, without code, markup, tables and lists of parameters.

The input is reStructuredText as Python projects write it (Sphinx, numpydoc, Google style). The
output is for training: text that is not clearly prose is left out.
"""

import re
from collections.abc import Iterator

from bert_jax.text.lines import split_sentences

# Sections of numpydoc in which nothing is prose.
_SECTIONS_WITHOUT_PROSE = {"References", "See Also", "Methods"}
# Directives whose contents are prose.
_PROSE_DIRECTIVES = {
    *("attention", "caution", "danger", "deprecated", "hint", "important", "note", "tip", "topic"),
    *("versionadded", "versionchanged", "warning"),
}
_DIRECTIVE = re.compile(r"\.\.( |$)(?:([\w-]+)::\s*(?:\d[\w.]*\s*)?)?")
_UNDERLINE = re.compile(r"([-=~^*#\"'.+])\1{2,}$")
# Rules of tables, and rows with their bars.
_TABLE = re.compile(r"[-=+|]{2,}([ +|]+[-=+|]+)+$|\|.*\|$|.*\S {3,}\S.* {3,}\S")
_BULLET = re.compile(r"(?:[-*+•]|\(?(?:\d{1,2}|[a-zA-Z])[.)])\s+(?=\S)")
# `name: text`, `name (type): text`, `:param name: text`: what comes before the text.
_ENTRY = re.compile(
    r"(?::(?:param|return|returns|raises|raise|arg|keyword|ivar|cvar)\b[^:]*:"
    r"|[*`]*[A-Za-z_][\w.]*[*`]*(?:, [*`]*\w+[*`]*)*(?: ?\([^()]*(?:\([^()]*\))?[^()]*\))?:"
    r")\s+(?=\S)"
)
_FIELD = re.compile(r":(?:type|rtype|vartype|meta)\b.*")

_INLINE = (
    # Footnotes: ` [1]_`, ` [CIT2002]_`.
    (re.compile(r" ?\[[#\w*.-]+\]_"), ""),
    # Roles and references with a title: :func:`title <target>`, `title <target>`_.
    (re.compile(r"(?::[\w:+-]+:)?`+([^`<>]+?)\s*<[^`<>]*>`+_{0,2}"), r"\1"),
    # A name whose last part is shown: :class:`~package.module.Name`.
    (re.compile(r"(?::[\w:+-]+:)?`~(?:\w+\.)*([^`]*)`"), r"\1"),
    (re.compile(r":[\w:+-]+: ?`!?([^`]*)`"), r"\1"),
    (re.compile(r"``(.+?)``|`([^`]+)`_{0,2}"), r"\1\2"),
    (re.compile(r"(?<![\w*])\*{1,2}(?=\S)([^*]+?)(?<=\S)\*{1,2}(?![\w*])"), r"\1"),
    # Escapes of markup, and white space.
    (re.compile(r"\\(?=[*`|_ ])"), ""),
    (re.compile(r"\s+"), " "),
)

# The dot in `package.Name` ends no sentence: a private-use character replaces it while splitting.
_DOT_IN_NAME = re.compile(r"(?<=\w)\.(?=\w)")
_DOT = "\ue000"

_WORD = re.compile(r"""["'(\[]*(?:[A-Za-z]+(?:['/-][A-Za-z]+)*|\d+(?:\.\d+)?)[]\])"',;:.!?]*$""")
_NO_PROSE = re.compile(r">>>|%\(|\\|https?:|www\.|[{}|`]|::|\.\. |==|\$|(?<!\w)\.\.\.(?=\w)")
# The remains of a removed reference: `as shown in [1]_.`
_CUT_OFF = re.compile(r"\b(?:and|at|by|for|from|in|of|on|see|the|to|with)[.:]$", re.IGNORECASE)
_SENTENCE = re.compile(r"""["'(]?[A-Z].*[.!?:]["')]*$""")
_MIN_WORDS, _MAX_WORDS = 4, 120
_MIN_WORD_FRACTION = 0.7


def prose_of(docstring: str) -> list[str]:
    """Returns the sentences of a docstring that are English prose, in their order.

    Args:
      docstring: its indentation already cleaned, as by `inspect.cleandoc`.
    """
    sentences = []
    for paragraph in _paragraphs(docstring.expandtabs().split("\n")):
        text = _plain(paragraph)
        if text.isprintable():
            pieces = split_sentences(_DOT_IN_NAME.sub(_DOT, text), "en")
            sentences += (piece.replace(_DOT, ".") for piece in pieces)
    return list(filter(is_prose, sentences))


def is_prose(sentence: str) -> bool:
    """Returns whether a text looks like one complete English sentence."""
    words = sentence.split()
    return (
        _MIN_WORDS <= len(words) <= _MAX_WORDS
        and _SENTENCE.match(sentence) is not None
        and _NO_PROSE.search(sentence) is None
        and _CUT_OFF.search(sentence) is None
        and sum(_WORD.match(word) is not None for word in words) >= _MIN_WORD_FRACTION * len(words)
    )


def _plain(paragraph: str) -> str:
    """Removes markup, and the name before the description of a parameter."""
    if entry := _ENTRY.match(paragraph):
        text = paragraph[entry.end() :]
        paragraph = text[0].upper() + text[1:]
    for pattern, replacement in _INLINE:
        paragraph = pattern.sub(replacement, paragraph)
    return paragraph


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Yields each run of lines of one indentation, joined, without blocks that are not prose.

    Those are doctests up to their blank line, everything indented below `::` or below a directive
    without prose, titles, tables, and sections of references.
    """
    paragraph: list[str] = []
    indent, hangs = 0, False
    # The indentation above the block that is being left out, and whether that is a doctest.
    left_out, is_doctest = None, False
    has_prose = True
    for line, next_line in zip(lines, [*lines[1:], ""], strict=True):
        text = line.strip()
        line_indent = len(line) - len(line.lstrip())
        if not text:
            is_doctest = False
        elif left_out is not None and line_indent <= left_out:
            left_out = None
        is_title = bool(text) and _UNDERLINE.match(next_line.strip()) is not None
        if is_title and not is_doctest and left_out is None:
            has_prose = text not in _SECTIONS_WITHOUT_PROSE
        is_doctest = is_doctest or text.startswith(">>>")
        directive = _DIRECTIVE.match(text)
        is_break = (
            not text
            or is_doctest
            or left_out is not None
            or not has_prose
            or is_title
            or directive is not None
            or any(pattern.match(text) for pattern in (_UNDERLINE, _TABLE, _FIELD))
        )
        bullet = None if is_break else _BULLET.match(text)
        starts_entry = not is_break and _ENTRY.match(text) is not None
        # Text after a name or a directive may continue below it with more indentation.
        continues = line_indent == indent or (hangs and line_indent > indent)
        if paragraph and (is_break or bullet or starts_entry or not continues):
            yield " ".join(paragraph)
            paragraph = []
        hangs = starts_entry or directive is not None
        if directive and left_out is None:
            if directive[2] not in _PROSE_DIRECTIVES:
                left_out = line_indent
            elif has_prose and directive.end() < len(text):
                paragraph, indent = [text[directive.end() :]], line_indent
        elif not is_break:
            paragraph.append(text[bullet.end() :] if bullet else text)
            indent = line_indent + (bullet.end() if bullet else 0)
            if text.endswith("::"):
                paragraph[-1] = paragraph[-1][:-1]
                left_out = line_indent
    if paragraph:
        yield " ".join(paragraph)
