"""Whether texts have the same token ids as with transformers' tokenizer of the folder."""

from typing import Any

from bert_jax.exchange import LoadedModel
from bert_jax.formats.foreign import sibling
from bert_jax.tools.convert.transformers_program import quiet

# Each kind of text that a setting of a tokenizer changes: case, accents, ideographs, compatibility
# characters, spaces, punctuation, long words.
TEXTS = (
    "The quick brown fox jumps over 13 lazy dogs.",
    "Don't stop-believing (1984): 3.14 & e-mail@example.org!",
    "Café naïve, ÀÉÎ, Straße, ÅNGSTRÖM, e\u0301te\u0301",
    "我们喜欢中文 and 日本語のテキスト 한국어",
    "Привет, мир! Γειά Κόσμε",
    "\ufb01nd \u2460 \uff26\uff55\uff4c\uff4c\u3000width \u00bd \u2122",
    "  two  spaces\tand\nlines ",
    "price \u20ac5, hello\U0001f600world",
    "incomprehensibilities" * 3,
    "",
)
_SHOWN = 40


def compare_token_ids(loaded: LoadedModel) -> dict[str, Any]:
    """Compares the ids of TEXTS with those of transformers; `none_because` if it cannot."""
    import transformers

    assert loaded.checkpoint
    try:
        with quiet():
            theirs = transformers.AutoTokenizer.from_pretrained(sibling(loaded.checkpoint.path, ""))
    except Exception as error:  # of any kind, by a package that the tokenizer needs
        return {"none_because": f"transformers cannot load the tokenizer ({error})"[:200]}
    differ = []
    for text in TEXTS:
        here = list(map(int, loaded.tokenizer.encode(text)))
        there = theirs(text, add_special_tokens=False)["input_ids"]
        if here != there:
            differ.append({"text": text, "here": here, "there": there})
    return {"with": type(theirs).__name__, "texts": len(TEXTS), "differ": differ}


def token_id_line(found: dict[str, Any]) -> str:
    """Returns the line that is printed of the result."""
    if reason := found.get("none_because"):
        return f"token ids   not compared: {reason}"
    if not (differ := found["differ"]):
        return f"token ids   those of {found['with']} for {found['texts']} texts"
    first, number = differ[0], f"{len(differ)} of {found['texts']} texts"
    here, there = _shown(first["here"]), _shown(first["there"])
    return (
        f"token ids   DIFFER from those of {found['with']} for {number}: {first['text']!r} has"
        f" {here} here, {there} there"
    )


def _shown(ids: list[int]) -> str:
    text = " ".join(map(str, ids))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."
