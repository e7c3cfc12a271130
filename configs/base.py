"""BERT-Base pre-training as in the paper (Devlin et al. 2019, section 3.1 and appendix A.2).

    python -m bert_jax.main --config=configs/base.py --workdir=DIR --config.data.source=text:PATH

12 layers, hidden 768, 12 heads: 110,106,428 parameters with both heads. One million steps of 256
sequences, nine tenths of them at 128 tokens and the rest at 512. Every field of every
pre-training configuration stands here, with the paper's value; the other files change values only.

A duration (`warmup`, `*.every`) is a text: "10000" or "10000 steps", "2 epochs", "1e6 examples",
"3e9 tokens", or "1%" of the run.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()

    # All in which the known BERTs differ, at once: paper, google_2018, google_2019, hf, roberta (a
    # row of bert_jax.config.presets.PRESETS); empty: as the fields below say.
    config.preset = ""
    # What is trained: one of bert_jax.config.TASKS.
    config.task = "pretraining"
    # What to take parameters, sizes and vocabulary from: a workdir, or a folder of Hugging Face or
    # google-research/bert; empty: start from random parameters.
    config.init_from = ""
    # Of everything random in training: initial parameters, order of the data, masks, dropout.
    config.seed = 0
    # Length of training, in optimizer updates.
    config.steps = 1_000_000
    # Length in another unit; the one that is not 0 takes the place of `steps`.
    config.epochs = 0.0
    config.examples = 0
    config.tokens = 0
    # One after the other: (sequence length, share of the steps), and where a phase has its own,
    # a third number, its global batch size, and a fourth, its predictions per sequence (A.2).
    config.phases = ((128, 0.9), (512, 0.1))
    # Sequences of one update, over all devices and processes.
    config.global_batch_size = 256
    # Sequences that go through the model at once, over all devices; 0: the whole batch.
    config.microbatch_size = 0
    # Precision of activations and matrix products; parameters and optimizer stay float32.
    config.dtype = "float32"
    # Generator of dropout: threefry2x32, threefry4x32, philox2x32, philox4x32, rbg.
    config.prng_impl = "threefry4x32"
    # A loss or gradient that is not finite is never applied: `abort` stops at once, `skip` goes on.
    config.nonfinite = "abort"
    # With `skip`: stop all the same after this many such steps in a row.
    config.nonfinite_limit = 5

    config.model = model = ConfigDict()
    # Rows of the embedding table, and the size of a vocabulary that is trained.
    model.vocab_size = 30_522
    # Round the rows of the embedding table up to a multiple of this (128 suits tensor cores).
    model.pad_vocab_to_multiple_of = 1
    model.hidden_size = 768
    model.num_layers = 12
    model.num_heads = 12
    model.intermediate_size = 3072
    model.max_position_embeddings = 512
    model.type_vocab_size = 2
    # Dropout after the embeddings and after each sub-layer, and of attention probabilities.
    model.dropout_rate = 0.1
    model.attention_dropout_rate = 0.1
    # Standard deviation of the truncated normal that all weights start from.
    model.initializer_range = 0.02
    model.layer_norm_epsilon = 1e-12
    # `gelu_tanh` (the released code since February 2019) or `gelu` (exact, by the error function).
    model.activation = "gelu_tanh"
    # Added to the attention score of what must not be seen: the released code's value.
    model.mask_value = -10_000.0
    # Whether there is a next-sentence head with its pooler, and its loss.
    model.next_sentence = True
    # Recompute each layer's activations in the backward pass: less memory, a third more work.
    model.remat = False

    config.data = data = ConfigDict()
    # installed_docs, text:GLOB, jsonl:GLOB, tfds:NAME.
    data.source = "installed_docs"
    # How lines become sentences: `sentences` (a sentence a line, BERT's own form), `paragraphs`
    # (a paragraph a line), `wrapped` (a paragraph goes on until a blank line).
    data.form = "paragraphs"
    # What ends a document of `text:`: `blank_line` or `file`.
    data.document = "blank_line"
    # Field that holds the text in `jsonl:` and `tfds:`.
    data.field = "text"
    # Language of the rules that split sentences (ISO 639-1).
    data.language = "en"
    # Text that cannot be right (invalid UTF-8, NUL, an overlong line): `replace`, `skip`, `error`.
    data.on_bad_text = "replace"
    # A vocab.txt or .model file, or train:wordpiece, train:unigram, train:bpe.
    data.vocab = "train:wordpiece"
    data.lowercase = True
    # What a row is: `pairs` of segments for next-sentence prediction, or `full_sentences` (Liu et
    # al. 2019, 4.2): as many sentences as fit, on into the next document after a [SEP].
    data.segments = "pairs"
    # `dynamic`: masks drawn anew at each step, on the device. `static`: the released program's
    # procedure, masks included, with the same random numbers.
    data.mode = "dynamic"
    # Of the pairs, the held-out split and, when static, the masks.
    data.seed = 12345
    # Pairs: how many times each document is cut into them.
    data.dupe_factor = 10
    # Pairs: share of the documents cut to a random shorter length.
    data.short_seq_prob = 0.1
    data.masked_lm_prob = 0.15
    # What is masked as one: `subword`, `whole_word`, `span` (runs of words, geometric lengths).
    data.masking = "subword"
    # How many of n tokens are masked, p being masked_lm_prob. `half_even`: round(n * p), at least
    # one; `stochastic`: n * p, up or down at random; `bernoulli`: each token by itself.
    data.mask_rounding = "half_even"
    # Most predictions of a sequence; 0: what mask_rounding gives for a full sequence at most.
    data.max_predictions_per_seq = 0
    # Share of the documents held out for evaluation.
    data.validation_share = 0.01
    # Where vocabulary and shards are kept; empty: `data` in the workdir.
    data.dir = ""
    # Processes that prepare the data; 0: one for each core.
    data.num_processes = 0

    config.optimizer = optimizer = ConfigDict()
    # A row of bert_jax.training.optim.OPTIMIZERS: bert_adam, adamw.
    optimizer.name = "bert_adam"
    optimizer.learning_rate = 1e-4
    # A row of bert_jax.training.optim.SCHEDULES: bert_linear, linear, constant.
    optimizer.schedule = "bert_linear"
    optimizer.warmup = "10000"
    optimizer.weight_decay = 0.01
    optimizer.beta1 = 0.9
    optimizer.beta2 = 0.999
    optimizer.epsilon = 1e-6
    # Largest global norm of the gradient; 0: no clipping.
    optimizer.clip_norm = 1.0
    # Parameters without weight decay: regular expressions searched in their path.
    optimizer.no_decay = ("layer_norm", "bias")
    # Factor of the learning rate from each layer to the one below it; 1: the same for all.
    optimizer.layer_decay = 1.0
    # The embeddings and this many layers stay as they are; 0: none, -1: the whole encoder.
    optimizer.frozen_layers = 0

    config.mesh = mesh = ConfigDict()
    # Devices along each axis; -1: what is left.
    mesh.data = -1
    mesh.fsdp = 1
    mesh.tensor = 1

    config.log = log = ConfigDict()
    log.every = "100"

    config.eval = evaluation = ConfigDict()
    evaluation.every = "10000"
    # Batches of the held-out split to evaluate on; 0: all.
    evaluation.batches = 0
    # Sequences of one evaluation batch; 0: as in training.
    evaluation.batch_size = 0
    # Stop after this many evaluations without a better one; 0: train to the end.
    evaluation.patience = 0

    config.checkpoint = checkpoint = ConfigDict()
    checkpoint.every = "10000"
    # Newest checkpoints to keep, and how many of the best ones beside them.
    checkpoint.keep = 3
    checkpoint.keep_best = 1
    # Metric of the held-out split that says which is best (the lowest of a loss, else the highest).
    checkpoint.best_metric = "loss"
    # Which one is evaluated, predicts and is exported: `newest` or `best`, in which case an
    # evaluation that is the best so far is saved whatever `every` says.
    checkpoint.use = "newest"
    # Resume although the configuration or the data differ from the checkpoint's.
    checkpoint.allow_changes = False

    return config
