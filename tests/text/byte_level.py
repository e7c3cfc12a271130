"""Small byte-level BPE tokenizers, trained by the `tokenizers` library."""

SENTENCES = [
    "The quick brown fox, it's said, jumps over the lazy dog's 25 puppies!",
    "Ünïcödé wörds — naïve café; 我们是中国人。 ΟΔΟΣ 12½ don't\n\tx = {y: [1]}",
    "They'll sleep   well,   we've heard. I'd sleep, too.",
] * 20
# Of ModernBERT's tokenizer: tokens that are not special and are found in text.
ADDED = ["   ", "      ", "|||PHONE|||"]
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>")


def train_byte_level(path, kind: str) -> None:
    """Trains a small tokenizer of the form of RoBERTa or ModernBERT, and writes it."""
    from tokenizers import (
        AddedToken,
        Tokenizer,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    is_modern = kind == "modernbert"
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"] if is_modern else [*ROBERTA, "<mask>"]
    tokenizer = Tokenizer(models.BPE())
    if is_modern:
        tokenizer.normalizer = normalizers.NFC()
    elif kind == "uncased":
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    add_prefix_space = kind == "prefix"
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=[] if is_modern else special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    if is_modern:  # as in the published file, after the others
        tokenizer.add_tokens([AddedToken(text, normalized=True) for text in ADDED])
        tokens = [AddedToken(x, special=True, lstrip=x == "[MASK]") for x in special]
        tokenizer.add_special_tokens(tokens)
        ids = {name: tokenizer.token_to_id(name) for name in special}
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(name, ids[name]) for name in ("[CLS]", "[SEP]")],
        )
    else:
        pair = [(name, tokenizer.token_to_id(name)) for name in ("</s>", "<s>")]
        tokenizer.post_processor = processors.RobertaProcessing(
            *pair, add_prefix_space=add_prefix_space
        )
    tokenizer.save(str(path))
