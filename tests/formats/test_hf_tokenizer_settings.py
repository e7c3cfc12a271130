"""Tokenizer files that transformers writes: the same ids here, or a refusal that names the key."""

import base64
import json
import shutil

import pytest
from sentencepiece import SentencePieceNormalizer, sentencepiece_model_pb2

from bert_jax.files.errors import UserError
from bert_jax.formats.foreign import Choices
from bert_jax.formats.hf_tokenizer import tokenizer_config, tokenizer_json
from bert_jax.formats.hf_tokenizer_settings import read_settings
from bert_jax.formats.hf_vocabulary import folder_vocabulary
from tests.tools.convert.hf_folders import edit_config, write_byte_level

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = [
    *"[PAD] [UNK] [CLS] [SEP] [MASK]".split(),
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    *"A É é ß 中 文 ##中 ##文 ##é ##É 中文 , .".split(),
]
TEXTS = ["Abé CAFÉ, é.", "a中文b", "中文", "ÉCOLE\tstraße", "x" * 60, ""]


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


def save_bert(transformers, folder, **options):
    """Writes the files of a BertTokenizer."""
    ids = {piece: number for number, piece in enumerate(PIECES)}
    transformers.BertTokenizer(vocab=ids, **options).save_pretrained(folder)
    return folder


def ours(folder, **choices):
    vocabulary, lowercase = folder_vocabulary(str(folder), Choices(**choices))
    return vocabulary.tokenizer(lowercase)


def assert_same(transformers, folder):
    tokenizer, theirs = ours(folder), transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.encode(text) == expected, text
        spans = tokenizer.character_spans(text)
        assert len(spans) == len(expected)
    return tokenizer


SWITCHES = [
    {"do_lower_case": True},
    {"do_lower_case": False},
    {"do_lower_case": True, "strip_accents": False},
    {"do_lower_case": False, "strip_accents": True},
    {"do_lower_case": False, "tokenize_chinese_chars": False},
    {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
]


@pytest.mark.parametrize("options", SWITCHES)
def test_switches_of_bert_are_followed(transformers, tmp_path, options):
    """In both files, in vocab.txt beside tokenizer_config.json, and after an export."""
    folder = save_bert(transformers, tmp_path / "theirs", **options)
    edit_config(folder, "tokenizer_config.json", model_type="bert")
    tokenizer = assert_same(transformers, folder)

    lines = shutil.copytree(folder, tmp_path / "lines")
    (lines / "vocab.txt").write_text("".join(f"{p}\n" for p in PIECES), encoding="utf-8")
    assert ours(lines).fingerprint == tokenizer.fingerprint
    (lines / "tokenizer.json").unlink()
    assert ours(lines).fingerprint == tokenizer.fingerprint

    exported = tmp_path / "exported"
    exported.mkdir()
    vocabulary, _ = folder_vocabulary(str(folder), Choices())
    files = {
        "tokenizer.json": tokenizer_json(tokenizer, vocabulary.content),
        "tokenizer_config.json": tokenizer_config(tokenizer, 40),
    }
    for name, content in files.items():
        (exported / name).write_text(json.dumps(content), encoding="utf-8")
    assert_same(transformers, exported)
    assert ours(exported).fingerprint == tokenizer.fingerprint


def test_a_generic_class_takes_tokenizer_json_as_it_is(transformers, tmp_path):
    folder = save_bert(transformers, tmp_path / "theirs", do_lower_case=False, strip_accents=True)
    edit_config(folder, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    edit_config(folder, "tokenizer_config.json", do_lower_case=True, strip_accents=False)
    assert_same(transformers, folder)


def change_json(folder, *keys, value, file="tokenizer.json"):
    """Sets content[key][key]... of a JSON file."""
    content = json.loads((folder / file).read_text(encoding="utf-8"))
    part = content
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    (folder / file).write_text(json.dumps(content), encoding="utf-8")


TOKEN = {"id": 69, "content": "<e1>", "special": True}
NFKC = {"type": "NFKC"}
# Keys of tokenizer.json, their value, and what is refused.
COMPONENTS = [
    (("normalizer",), NFKC, "has the normalizer NFKC: only BertNormalizer"),
    (("normalizer",), None, "has the normalizer none"),
    (
        ("normalizer",),
        {"type": "Sequence", "normalizers": [NFKC, {"type": "Lowercase"}]},
        "has the normalizer NFKC then Lowercase",
    ),
    (("normalizer", "clean_text"), False, "clean_text=False"),
    (("pre_tokenizer",), {"type": "Whitespace"}, "has the pre_tokenizer Whitespace"),
    (("model", "continuing_subword_prefix"), "@@", "continuing_subword_prefix='@@'"),
    (("model", "unk_token"), "<unk>", "unk_token='<unk>'"),
    (("model", "type"), "WordLevel", "type 'WordLevel'"),
    (("added_tokens",), [TOKEN], "has added tokens ('<e1>')"),
    (
        ("post_processor",),
        {"type": "BertProcessing", "sep": ["[PAD]", 0], "cls": ["[CLS]", 2]},
        r"makes \[CLS\] A \[PAD\] of a text A",
    ),
]
SETTINGS = [
    ({"tokenizer_class": "BertJapaneseTokenizer"}, "names the class BertJapaneseTokenizer"),
    ({"word_tokenizer_type": "mecab"}, "word_tokenizer_type='mecab'"),
    ({"do_basic_tokenize": False}, "do_basic_tokenize=False"),
    ({"never_split": ["abc"]}, "never_split="),
    ({"truncation_side": "left"}, "truncation_side='left'"),
    ({"cls_token": "[PAD]"}, r"cls_token='\[PAD\]': with this vocabulary only '\[CLS\]'"),
    ({"mask_token": {"content": "<m>"}}, "mask_token='<m>'"),
    ({"additional_special_tokens": ["<e1>"]}, "adds the token '<e1>'"),
    ({"extra_special_tokens": {"x": "<e1>"}}, "adds the token '<e1>'"),
    ({"added_tokens_decoder": {"69": TOKEN}}, "adds the token '<e1>'"),
    ({"auto_map": {"AutoTokenizer": ["a.B", None]}}, "has its own class \\(auto_map"),
    ({"strip_accents": None}, "has strip_accents=False, which transformers' BertTokenizer does"),
    (
        {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False},
        "add_bos_token=False",
    ),
]


@pytest.fixture(scope="module")
def saved(transformers, tmp_path_factory):
    return save_bert(transformers, tmp_path_factory.mktemp("saved"), strip_accents=False)


@pytest.mark.parametrize(("keys", "value", "message"), COMPONENTS)
def test_other_components_are_refused(saved, tmp_path, keys, value, message):
    folder = shutil.copytree(saved, tmp_path / "theirs")
    change_json(folder, *keys, value=value)
    with pytest.raises(UserError, match=message.replace("(", r"\(").replace(")", r"\)")):
        ours(folder)


@pytest.mark.parametrize(("changes", "message"), SETTINGS)
def test_other_settings_are_refused(saved, tmp_path, changes, message):
    folder = shutil.copytree(saved, tmp_path / "theirs")
    edit_config(folder, "tokenizer_config.json", **changes)
    with pytest.raises(UserError, match=message):
        ours(folder)


def test_another_length_of_words_is_followed(transformers, saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "theirs")
    edit_config(folder, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    change_json(folder, "model", "max_input_chars_per_word", value=50)
    tokenizer = assert_same(transformers, folder)
    assert tokenizer.encode("x" * 60) == [tokenizer.unk_id]


def test_a_vocab_txt_beside_another_tokenizer_json_is_refused(saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "theirs")
    lines = list(PIECES)
    lines[5:7] = lines[6:4:-1]
    (folder / "vocab.txt").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(UserError, match="have other pieces, such as '[ab]': remove the wrong"):
        ours(folder)
    write_byte_level(folder)
    with pytest.raises(UserError, match="has a tokenizer of type 'BPE', and vocab.txt is one of W"):
        ours(folder)


def test_settings_in_other_files_and_beside_other_vocabularies_are_refused(saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "theirs")
    (folder / "config.json").write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    assert ours(folder)  # tokenizer_config.json comes first
    edit_config(folder, "tokenizer_config.json", tokenizer_class=None)
    (folder / "added_tokens.json").write_text('{"<e1>": 69}')
    (other := tmp_path / "byte_level").mkdir()
    write_byte_level(other)
    prefix = {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True}
    for path, message, change in (
        (folder, "BertJapaneseTokenizer", lambda: None),
        (folder, "added_tokens.json adds the token '<e1>'", (folder / "config.json").unlink),
        (other, "has add_prefix_space=", lambda: write_config(other, prefix)),
        (
            other,
            "names the class Herbert",
            lambda: write_config(other, {"tokenizer_class": "HerbertTokenizer"}),
        ),
    ):
        change()
        with pytest.raises(UserError, match=message):
            ours(path)


def write_config(folder, values):
    (folder / "tokenizer_config.json").write_text(json.dumps(values))


# ------------------------------------------------------------------ pairs


def template(*pair):
    """A post_processor with [CLS] A [SEP] and this pair, as names with types."""
    parts = [
        {"Sequence" if name in "AB" else "SpecialToken": {"id": name, "type_id": kind}}
        for name, kind in pair
    ]
    single = [parts[0], {"Sequence": {"id": "A", "type_id": 0}}, parts[2]]
    return {"type": "TemplateProcessing", "single": single, "pair": parts, "special_tokens": {}}


FIRST = [("[CLS]", 0), ("A", 0), ("[SEP]", 0)]


@pytest.mark.parametrize(
    ("pair", "changes", "message"),
    [
        ([*FIRST, ("B", 1), ("[SEP]", 1)], {}, ""),
        ([*FIRST, ("B", 0), ("[SEP]", 0)], {}, "gives the second text of a pair the token type of"),
        ([*FIRST, ("B", 0), ("[SEP]", 0)], {"model_input_names": ["input_ids"]}, ""),
        ([*FIRST, ("[SEP]", 0), ("B", 1), ("[SEP]", 1)], {}, r"makes \[CLS\] A \[SEP\] \[SEP\] B"),
    ],
)
def test_a_generic_class_frames_pairs_by_its_template(saved, tmp_path, pair, changes, message):
    folder = shutil.copytree(saved, tmp_path / "theirs")
    changes = {"tokenizer_class": "PreTrainedTokenizerFast", **changes}
    edit_config(folder, "tokenizer_config.json", **changes)
    change_json(folder, "post_processor", value=template(*pair))
    if not message:
        assert ours(folder)
        return
    with pytest.raises(UserError, match=message):
        ours(folder)


@pytest.mark.parametrize(
    ("settings", "gives"),
    [
        ({}, True),
        ({"tokenizer_class": "BertTokenizerFast"}, True),
        ({"tokenizer_class": "XLMRobertaTokenizer"}, False),
        ({"tokenizer_class": "DistilBertTokenizer"}, False),
        ({"tokenizer_class": "XLMRobertaTokenizer", "model_input_names": ["token_type_ids"]}, True),
    ],
)
def test_token_types_are_those_of_the_class_unless_a_file_names_them(tmp_path, settings, gives):
    write_config(tmp_path, settings)
    assert read_settings(str(tmp_path)).gives_types == gives


# ------------------------------------------------------------------ Unigram

WHITE_SPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}
CHARSMAP = {"type": "Precompiled"}  # with SentencePiece's table, added by `write_unigram`
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def write_unigram(folder, normalizers, splits, *added):
    names = [*SPECIAL[:4], "\u2581", *LETTERS, "<mask>"]
    ids = {name: number for number, name in enumerate([*names, *added])}
    rules = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokens = [
        {"id": ids[name], "content": name, **rules, "special": True} for name in (*SPECIAL, *added)
    ]
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(SentencePieceNormalizer(rule_name="nmt_nfkc").serialized_model_proto())
    table = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    with_table = {"precompiled_charsmap": table}
    normalizers = [step | with_table if step is CHARSMAP else step for step in normalizers]
    content = {
        "added_tokens": tokens,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits},
        "model": {"type": "Unigram", "unk_id": 3, "vocab": [[name, -1.0] for name in names]},
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


JOIN = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}
STRIP = {"type": "Strip", "strip_left": False, "strip_right": True}


@pytest.mark.parametrize(
    ("normalizers", "splits", "added", "message"),
    [
        ([CHARSMAP], [{"type": "WhitespaceSplit"}, WHITE_SPACE], [], ""),
        ([STRIP, JOIN, CHARSMAP], [WHITE_SPACE], [], ""),
        ([CHARSMAP], [WHITE_SPACE], [], "has neither a pre_tokenizer 'WhitespaceSplit' nor"),
        ([{"type": "Lowercase"}, CHARSMAP, JOIN], [WHITE_SPACE], [], "normalizer 'Lowercase'"),
        ([{"type": "NFKC"}, CHARSMAP, JOIN], [WHITE_SPACE], [], "normalizer 'NFKC'"),
        ([CHARSMAP, JOIN], [WHITE_SPACE], ["covid"], r"has added tokens \('covid'\)"),
    ],
)
def test_a_unigram_tokenizer_json_has_the_steps_of_sentencepiece(
    tmp_path, normalizers, splits, added, message
):
    folder = write_unigram(tmp_path, normalizers, splits, *added)
    if not message:
        theirs = pytest.importorskip("tokenizers").Tokenizer.from_file(f"{folder}/tokenizer.json")
        for text in ("the cat", "two  spaces ", "\uff41 caf\u00e9"):
            expected = theirs.encode(text, add_special_tokens=False).ids
            assert list(ours(folder).encode(text)) == expected, text
        return
    with pytest.raises(UserError, match=message):
        ours(folder)
