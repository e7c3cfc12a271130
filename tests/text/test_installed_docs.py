"""The installed documentation: read without imports, cleaned to prose, each sentence once."""

import inspect
import os
import pickle
from collections import Counter

import pytest

from bert_jax.text import installed_docs
from bert_jax.text.docstrings import is_prose, prose_of
from bert_jax.text.installed_docs import InstalledDocs, docstrings_of, source_files

NUMPYDOC = """
Return the sum of ``values`` along an `axis`, as :func:`~package.sums.total` does
it.  This line follows (see [1]_ for why).

.. versionadded:: 1.4
   The keyword was added some time ago.

.. math::

   s = \\sum_i v_i  That is no prose at all.

.. note:: A remark may start on the line
   of its directive.

Parameters
----------
values : array_like, optional
    The numbers to sum. Each of them
    counts only once.
axis : {0, 1}

Returns
-------
out : ndarray
    The sum has the dtype of the values.

See Also
--------
total : This one does the same thing in vain.

Notes
-----
A list of things follows the colon::

    x = total(values)  This line is code and nothing else.

* The first item of the list is
  wrapped over two lines.
* The second one *is* not.

========  ======================
column    The table is no prose.
========  ======================

References
----------
.. [1] A. Author, "This is the title of a book", 1999.

Examples
--------
The example starts with a call:

>>> total([1, 2])
This is the output of a doctest.

And it ends with one more sentence.
"""

GOOGLE = """Combines the two arrays into one.

Uses :class:`package.Thing` where it can, and `a title <https://a.b>`_ too.

Args:
  first: the array that comes first in the
    result of the call.
  second (Sequence[int], optional): The array that comes after it.
  **options: Other names are passed on to `package.Thing.make`.
  short: int.

Returns:
  The combined array with all rows of both.

:param third: the array that comes last of all.
:type third: This says the type and nothing else.
"""


def test_prose_of_a_docstring_in_the_style_of_numpy():
    assert prose_of(inspect.cleandoc(NUMPYDOC)) == [
        "Return the sum of values along an axis, as total does it.",
        "This line follows (see for why).",
        "The keyword was added some time ago.",
        "A remark may start on the line of its directive.",
        "The numbers to sum.",
        "Each of them counts only once.",
        "The sum has the dtype of the values.",
        "A list of things follows the colon:",
        "The first item of the list is wrapped over two lines.",
        "The second one is not.",
        "The example starts with a call:",
        "And it ends with one more sentence.",
    ]


def test_prose_of_a_docstring_in_the_style_of_google():
    assert prose_of(inspect.cleandoc(GOOGLE)) == [
        "Combines the two arrays into one.",
        "Uses package.Thing where it can, and a title too.",
        "The array that comes first in the result of the call.",
        "The array that comes after it.",
        "Other names are passed on to package.Thing.make.",
        "The combined array with all rows of both.",
        "The array that comes last of all.",
    ]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("This is a sentence.", True),
        ('He said "it is (almost) done."', True),
        ("If axis is None, the default, all of the 2.5 million values are summed.", True),
        ("Does it return the value?", True),
        ("Too short.", False),
        ("no capital letter at the start.", False),
        ("There is no end to this", False),
        ("X = foo(a, b) + c[0] * d.", False),
        ("See the page at https://example.com for more.", False),
        ("Where \\alpha is the angle of it.", False),
        ("This was shown by the author of.", False),
        ("Word " * 200 + "end.", False),
    ],
)
def test_complete_sentences_are_prose(text, expected):
    assert is_prose(text) is expected


def test_docstrings_come_in_the_order_of_the_source_and_add_newdoc_counts(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        '"""Module."""\n'
        "if True:\n    def f():\n        '''F.'''\n        def g():\n            'G.'\n"
        "add_newdoc('module', 'h', '''\n    H\n    ''')\n"
        "add_newdoc('module', 'A', ('b', '''B\n'''))\n"
        "x = 'no docstring\\n'\n"
        "class C:\n    'C.'\n    async def d(self):\n        'D.'\n"
    )
    assert docstrings_of(str(path)) == ["Module.", "F.", "G.", "H", "B", "C.", "D."]


def test_tests_and_other_projects_code_are_left_out(tmp_path):
    for name in ("b.py", "a/z.py", "a.py", "tests/t.py", "site-packages/s.py", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    names = [os.path.relpath(path, tmp_path) for path in source_files(str(tmp_path))]
    assert names == ["a/z.py", "a.py", "b.py"]


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A folder in place of the standard library's."""
    monkeypatch.setattr(installed_docs.sysconfig, "get_path", lambda name: str(tmp_path))
    return tmp_path


def test_a_sentence_counts_once_and_short_documents_not_at_all(library):
    long = "This sentence is longer than some forty characters."
    both = "It comes first of all. It is of use here."
    (library / "a.py").write_text(f'"""{long} {both}"""')
    (library / "b.py").write_text(f'"""{long} {both} And so on it goes."""')
    (library / "c.py").write_text(f'"""{long} {both}"""')
    (library / "d.py").write_text("print 'of another Python'")
    counts = Counter()
    documents = list(InstalledDocs(packages=("no_such_package",)).documents(counts))
    rest = ["It comes first of all.", "It is of use here."]
    assert documents == [[long, *rest], [*rest, "And so on it goes."]]
    assert counts == {
        "duplicate_sentences": 2,
        "short_documents": 1,
        "unreadable_modules": 1,
        "missing_packages": 1,
    }


def test_chunks_hold_the_documents_in_order(library, monkeypatch):
    monkeypatch.setattr(installed_docs, "_CHUNK", 100)
    for i in range(10):
        sentences = " ".join(f"Here is sentence {j} of module {i}." for j in range(i))
        (library / f"m{i}.py").write_text(f'"""{sentences}"""')
    source = InstalledDocs(packages=("this_one_is_missing",))
    expected_counts, counts = Counter(), Counter()
    expected = list(source.documents(expected_counts))
    chunks = pickle.loads(pickle.dumps(source.chunks()))
    assert len(chunks) > 3
    assert [d for chunk in chunks for d in source.read(chunk, counts)] == expected
    assert counts == expected_counts and counts["short_documents"] == 3
