"""The default configurations: every field, what it means, and its value.

`pretraining()` has the values of BERT-Base in the paper (Devlin et al. 2019, section 3.1 and
appendix A.2). `finetuning(task)` has those of section 4 and appendix A.3; the functions after it
set what a task needs. An experiment in configs/ takes one of them and changes values.

A duration (`warmup`, `*.every`) is a string: "10000" or "10000 steps", "2 epochs", "1e6 examples",
"3e9 tokens", or "1%" of the run. "0" is never, or no warm-up.
"""

from ml_collections import ConfigDict

from bert_jax.files.errors import UserError


def pretraining() -> ConfigDict:
    """Returns the defaults for training on a corpus."""
    config = ConfigDict()

    # Sets all fields in which the well-known BERTs differ: paper, google_2018, google_2019, hf,
    # roberta (a row of bert_jax.config.presets.PRESETS); empty: the fields below as they are.
    config.preset = ""
    # What is trained: a row of bert_jax.tasks.TASKS.
    config.task = "pretraining"
    # Source of initial parameters, model sizes and vocabulary: a workdir, or a folder of Hugging
    # Face or google-research/bert; empty: random initial parameters.
    config.init_from = ""
    # Seed of initial parameters, order of the data, masks and dropout.
    config.seed = 0
    # Length of training in steps (updates of the parameters).
    config.steps = 1_000_000
    # Length of training in other units; the one that is not 0 replaces `steps`.
    config.epochs = 0.0
    config.examples = 0
    config.tokens = 0
    # In order: (sequence length, fraction of the steps[, global batch size[, predictions per
    # sequence]]); without the third and fourth, the fields below apply (paper, appendix A.2).
    config.phases = ((128, 0.9), (512, 0.1))
    # Sequences of a step, over all devices and processes.
    config.global_batch_size = 256
    # Sequences of a forward and backward pass, over all devices; 0: the whole batch.
    config.microbatch_size = 0
    # Of activations and matrix products: float32, bfloat16; bfloat16_products: float32, but the
    # operands of dense layers are rounded, which is fastest on CPUs with instructions for bfloat16.
    # Parameters and optimizer state are always float32.
    config.dtype = "float32"
    # Random bit generator of dropout: threefry2x32, threefry4x32, philox2x32, philox4x32, rbg.
    config.prng_impl = "threefry4x32"
    # After a non-finite loss or gradient, which is never applied: `abort` the run, or `skip` it.
    config.nonfinite = "abort"
    # With `skip`: abort after this many non-finite steps in a row.
    config.nonfinite_limit = 5

    config.model = model = ConfigDict()
    # The encoder: a row of bert_jax.models.MODELS.
    model.name = "bert"
    # Rows of the embedding table, and the size of a vocabulary that is trained.
    model.vocab_size = 30_522
    # Rounds the rows of the embedding table up to a multiple (128 suits tensor cores).
    model.pad_vocab_to_multiple_of = 1
    model.hidden_size = 768
    model.num_layers = 12
    model.num_heads = 12
    model.intermediate_size = 3072
    model.max_position_embeddings = 512
    # Token types; 0: none.
    model.type_vocab_size = 2
    # Of the embeddings and of the output of each sub-layer; and of attention probabilities.
    model.dropout_rate = 0.1
    model.attention_dropout_rate = 0.1
    # Initial weights: truncated_normal (at two standard deviations), normal.
    model.initializer = "truncated_normal"
    # Standard deviation of the normal distribution of initial weights, before truncation.
    model.initializer_range = 0.02
    model.layer_norm_epsilon = 1e-12
    # Layer normalization after (`post`) or before (`pre`) each sub-layer.
    model.norm_place = "post"
    # Whether, with `pre`, a norm precedes the first sub-layer too, besides that of the embeddings.
    model.first_layer_norm = True
    # Normalization: layer_norm, rms_norm.
    model.norm = "layer_norm"
    # Normalize queries and keys over the features of a head.
    model.query_key_norm = False
    # Whether dense layers and layer norms have biases.
    model.biases = True
    # Position information: learned, sinusoidal, rotary, none.
    model.positions = "learned"
    # With rotary positions: the longest wavelength is 2 pi times this; and the same of blocks that
    # attend to a window, where 0 is the same value.
    model.rotary_base = 10_000.0
    model.window_rotary_base = 0.0
    # Positions that a position attends to: bidirectional, causal, window (a local window).
    model.attention_pattern = "bidirectional"
    # With mask `window`: the maximum distance; otherwise 0.
    model.attention_window = 0
    # With mask `window`: every n-th block, the first included, attends to all positions; 0: none.
    model.global_every = 0
    # Feed-forward sub-layer: plain, gated.
    model.feed_forward = "plain"
    # Implementation of attention: einsum, dot_product, cudnn (GPUs), splash (TPUs).
    model.attention = "einsum"
    # Between hidden states and the table of words, for predictions of words: `transform` (BERT's
    # dense, activation, layer norm, and a bias), or `tied` (GPT's: the product only).
    model.lm_head = "transform"
    # `gelu_tanh` (the released code since February 2019) or `gelu` (with the error function).
    model.activation = "gelu_tanh"
    # Added to the attention scores of masked positions; the value is the released code's.
    model.mask_value = -10_000.0
    # Whether the model has a pooler and a next-sentence head, with its loss.
    model.next_sentence = True
    # Recompute activations in the backward pass: less memory, a third more computation.
    model.remat = False
    # What is not recomputed then: `nothing`, or the `products` with kernels, most of the work.
    model.remat_policy = "nothing"
    # Compile one block and apply it in a loop over the parameters of all: faster to compile.
    model.scan_layers = False

    config.data = data = ConfigDict()
    # installed_docs, text:GLOB, jsonl:GLOB, tfds:NAME.
    data.source = "installed_docs"
    # How lines form sentences: `sentences` (one per line, the released code's form), `paragraphs`
    # (one per line, split into sentences), `wrapped` (paragraphs that end at a blank line).
    data.line_format = "paragraphs"
    # What ends a document of `text:`: `blank_line` or `file`.
    data.document_separator = "blank_line"
    # Field with the text, in `jsonl:` and `tfds:`.
    data.field = "text"
    # Language of the rules for sentence boundaries (ISO 639-1).
    data.language = "en"
    # Malformed text (invalid UTF-8, NUL, overlong lines): `replace`, `skip`, `error`.
    data.on_bad_text = "replace"
    # A vocab.txt or .model file, or train:wordpiece, train:unigram, train:bpe.
    data.vocab = "train:wordpiece"
    data.lowercase = True
    # Rows are `pairs` of segments for next-sentence prediction; `full_sentences`: as many
    # sentences as fit, across documents, with [SEP] between documents (Liu et al. 2019, 4.2);
    # `running_text`: the text cut at the sequence length, for next-token prediction; or `stream`:
    # the whole corpus without gaps, for models that carry a state from row to row.
    data.segments = "pairs"
    # `dynamic`: masks are drawn at each step, on the device. `static`: masks are drawn once, by the
    # released code's procedure with the same random numbers.
    data.mode = "dynamic"
    # Seed of pairs, held-out split and static masks.
    data.seed = 12345
    # Pairs: number of times that each document is split into pairs.
    data.dupe_factor = 10
    # Pairs: fraction of the documents split with a random, shorter target length.
    data.short_seq_prob = 0.1
    data.masked_lm_prob = 0.15
    # What it falls to, linearly from the first to the last step, with dynamic masks; 0: constant.
    data.final_masked_lm_prob = 0.0
    # The same in evaluations of dynamic masks, so that runs with other rates can be compared; 0:
    # masked_lm_prob.
    data.eval_masked_lm_prob = 0.15
    # Unit of masking: `subword`, `whole_word`, `span` (of words, with geometric lengths), `phrase`
    # (the longest phrases of data.lexicon, and the words outside them).
    data.masking = "subword"
    # `phrase`: a file with a phrase a line, or a phrase, a tab and the name of its class.
    data.lexicon = ""
    # `phrase`: weights in the choice of units: ("CLASS=WEIGHT", ...); 0: never masked. Words, and
    # phrases of other classes or of none, have weight 1.
    data.lexicon_weights = ()
    # Shares of the chosen tokens that become [MASK], stay, and become a random token (paper,
    # appendix C.2); they add up to 1.
    data.mask_share = 0.8
    data.keep_share = 0.1
    data.random_share = 0.1
    # Number of masked tokens among n, with p = masked_lm_prob. `half_even`: round(n * p), at least
    # 1; `stochastic`: n * p rounded up or down at random; `bernoulli`: each token independently.
    data.mask_rounding = "half_even"
    # Maximum predictions of a sequence; 0: the largest number that mask_rounding gives.
    data.max_predictions_per_seq = 0
    # Most examples of a row: more than 1 packs several, which do not attend to each other, into
    # rows that they fill better. Steps, epochs and examples then count rows.
    data.max_examples_per_row = 1
    # Fraction of the documents held out for evaluation.
    data.validation_share = 0.01
    # Folder of vocabulary and shards; empty: `data` in the workdir.
    data.dir = ""
    # Processes that prepare the data; 0: one for each core.
    data.num_processes = 0

    config.optimizer = optimizer = ConfigDict()
    # A row of bert_jax.optim.optimizers.OPTIMIZERS: bert_adam, adamw, gpt_adam, adagrad,
    # adafactor, lamb, muon.
    optimizer.name = "bert_adam"
    optimizer.learning_rate = 1e-4
    # A row of bert_jax.optim.schedules.SCHEDULES: bert_linear, linear, trapezoid, constant,
    # cosine, root, gpt_linear, gpt_cosine.
    optimizer.schedule = "bert_linear"
    optimizer.warmup = "10000"
    # Schedule `trapezoid`: fraction of the run, at its end, in which the rate falls to 0.
    optimizer.decay_fraction = 0.5
    # The schedule begins anew in each phase: (peak, fraction of the phase that is warm-up), ..., in
    # place of `learning_rate` and `warmup`; (): one schedule over the whole run.
    optimizer.phase_schedules = ()
    optimizer.weight_decay = 0.01
    optimizer.beta1 = 0.9
    optimizer.beta2 = 0.999
    optimizer.epsilon = 1e-6
    # Adagrad: what the sums of squared gradients start from.
    optimizer.initial_accumulator = 1.0
    # Maximum global norm of the gradient; 0: no clipping.
    optimizer.clip_norm = 1.0
    # Parameters without weight decay: regular expressions searched in their paths.
    optimizer.no_decay = ("layer_norm", "bias")
    # Factor of the learning rate from each layer to the layer below; 1: none.
    optimizer.layer_decay = 1.0
    # Freezes the embeddings and this many layers; 0: none, -1: the whole encoder.
    optimizer.frozen_layers = 0

    # Devices along each axis; -1: all that remain.
    config.mesh = ConfigDict({"data": -1, "fsdp": 1, "tensor": 1})

    config.log = ConfigDict({"every": "100"})

    config.eval = evaluation = ConfigDict()
    evaluation.every = "10000"
    # Batches of the held-out split to evaluate; 0: all.
    evaluation.max_batches = 0
    # Sequences of an evaluation batch; 0: the training batch size.
    evaluation.batch_size = 0
    # Early stopping: evaluations without improvement; 0: train to the end.
    evaluation.patience = 0

    config.checkpoint = checkpoint = ConfigDict()
    checkpoint.every = "10000"
    # Number of newest checkpoints to keep, and of best ones in addition.
    checkpoint.keep = 3
    checkpoint.keep_best = 1
    # Metric of the held-out split that selects the best: the lowest loss, perplexity or bits per
    # character, otherwise the highest value.
    checkpoint.best_metric = "loss"
    # Checkpoint for evaluation, prediction and export: `newest` or `best`. With `best`, an
    # evaluation with the best metric so far is saved in addition to `every`.
    checkpoint.use = "newest"
    # Resume even if configuration or data differ from the checkpoint's.
    checkpoint.allow_changes = False
    return config


def causal_lm() -> ConfigDict:
    """Returns the defaults for predicting next tokens with BERT: no fields but `metrics` are new.

    Data, sizes and settings are those of `pretraining` (paper, section 5.1, "LTR & No NSP").
    """
    config = pretraining()
    config.task = "causal_lm"
    config.model.attention_pattern = "causal"
    config.model.next_sentence = False
    # What evaluations report: causal_lm_loss, causal_lm_accuracy, perplexity; with rows of running
    # text also word_perplexity, bits_per_character.
    config.metrics = ("causal_lm_loss", "causal_lm_accuracy", "perplexity")
    return config


def bidirectional_lm() -> ConfigDict:
    """Returns the defaults for ELMo's pre-training, with the settings of bilm-tf's `train_elmo.py`.

    The model has 93.6 million parameters, and the softmax 407 million (Peters et al. 2018).
    """
    config = pretraining()
    config.task = "bidirectional_lm"
    config.epochs = 10.0
    # Rows are steps of time, over which the gradient is computed; states go on from row to row.
    config.phases = ((20, 1.0),)
    config.global_batch_size = 3 * 128
    config.model = elmo_model()

    config.data.line_format = "sentences"
    config.data.segments = "stream"
    config.data.vocab = "train:words"
    config.data.lowercase = False

    config.head = head = ConfigDict()
    # While training, a word is told apart from all words (`full`), or from `num_samples` random
    # words of a vocabulary that is sorted by frequency (`sampled`). Evaluations use all words.
    head.softmax = "sampled"
    head.num_samples = 8192
    # Whether the gradient is that of the loss times the length of a row, as in bilm-tf, which
    # matters for clipping and Adagrad; otherwise that of the loss, a mean over all words.
    head.sum_over_time = True
    # What evaluations report.
    config.metrics = (
        *("bidirectional_lm_loss", "bidirectional_lm_accuracy", "forward_loss", "backward_loss"),
        *("perplexity", "forward_perplexity", "backward_perplexity"),
        *("word_perplexity", "bits_per_character"),
    )

    config.optimizer.name = "adagrad"
    config.optimizer.learning_rate = 0.2
    config.optimizer.schedule = "constant"
    config.optimizer.warmup = "0"
    config.optimizer.weight_decay = 0.0
    config.optimizer.initial_accumulator = 1.0
    config.optimizer.clip_norm = 10.0
    return config


def elmo_model() -> ConfigDict:
    """Returns `config.model` of ELMo, with the published sizes."""
    model = ConfigDict()
    model.name = "elmo"
    # Words of the softmax, the most frequent ones; the others are the unknown word.
    model.vocab_size = 793_471
    model.pad_vocab_to_multiple_of = 1
    # Of both directions together.
    model.hidden_size = 1024
    model.num_layers = 2
    # Longest text that is encoded at once, for features and fine-tuning.
    model.max_position_embeddings = 512
    # Of the input of each layer, and of the output.
    model.dropout_rate = 0.1
    # Of heads only.
    model.initializer_range = 0.02
    model.layer_norm_epsilon = 1e-12
    model.activation = "gelu"
    # What words are made of: characters, or embeddings (a table).
    model.tokens = "characters"
    model.character_size = 16
    # Of a word, with markers of its begin and end.
    model.max_characters = 50
    # (width, number) of the filters over characters.
    model.filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    model.cnn_activation = "relu"
    model.highway_layers = 2
    # Cells of an LSTM; its output is projected to half of hidden_size.
    model.cell_size = 4096
    # Largest absolute values of the cells and of the projected output; 0: no limit.
    model.cell_clip = 3.0
    model.projection_clip = 3.0
    # From the second layer on, a layer's input is added to its output.
    model.skip_connections = True
    # ELMo predicts words only.
    model.next_sentence = False
    return model


def finetuning(task: str) -> ConfigDict:
    """Returns the defaults for training on labelled examples; `task` is a row of TASKS.

    The fields that pre-training also has are described there. `eval.max_batches` has no effect: all
    examples are evaluated.
    """
    config = pretraining()
    config.task = task
    config.steps = 1
    config.epochs = 3.0
    # Number of runs, with seeds `seed`, `seed` + 1, ..., in one folder of the workdir each.
    config.seeds = 1
    # Maximum sequence length in tokens.
    config.max_length = 128
    delattr(config, "phases")
    config.global_batch_size = 32
    # Number of layers, counted from the last one, that start from random parameters together with
    # the pooler, instead of from `init_from`.
    config.reinit_layers = 0

    config.data = data = ConfigDict()
    # Files; for tagging and published sets also tfds:NAME[SPLIT] of tensorflow-datasets.
    data.train = ""
    data.eval = ""
    # Further files to evaluate: NAME=FILE, ...; their scores are named NAME_...
    data.more_eval = ()
    # Columns by name, or by number from 0 in files without a header; empty: no such column.
    data.text_a = "text_a"
    data.text_b = ""
    data.label = "label"
    data.id = ""
    # Separator of several labels in the label column; empty: one label per row.
    data.label_separator = ""
    # Multiple choice: columns of the endings, in order.
    data.endings = ()
    # A row of GLUE or CHINESE in data/labelled/text_tasks.py, which defines columns and labels;
    # msra_ner, whose words are characters; cmrc2018, which has its own scores.
    data.published = ""
    # A vocab.txt or .model file; empty: the one of `init_from`.
    data.vocab = ""
    data.lowercase = True
    # What batches have in common: the number of `rows`, or of `tokens` (for losses over words),
    # where a batch of short sentences has more than global_batch_size, one of long ones fewer.
    data.batch_by = "rows"
    # Most examples of a row in training: more than 1 packs several, which do not attend to each
    # other, into rows of the maximum length. Batches have about as many examples as without.
    data.max_examples_per_row = 1
    # Sequence lengths that rows are padded to, in addition to the maximum; (): a few, chosen from
    # the rows to train on, so that they have the least padding.
    data.bucket_lengths = ()

    config.head = head = ConfigDict()
    # Classification: `single`, `multi` (any number of labels) or `regression`.
    head.problem_type = "single"
    # Tagging: whether tags mark entities (O, B-TYPE, I-TYPE, ...) or classify single words.
    head.entities = True
    # Tagging: linear, crf, bilstm, bilstm_crf. The other tasks: linear, or bilstm, a randomly
    # initialized BiLSTM on top of the encoder (paper, section 5.1).
    head.tagging = "linear"
    head.classification = "linear"
    head.span = "linear"
    head.multiple_choice = "linear"
    head.lstm_size = 768
    head.lstm_layers = 2
    # What the head reads: last, embeddings, second_to_last, sum_last_4, concat_last_4, sum_all
    # (paper, Table 7); with learned weights: scalar_mix (all layers), mix_last_4,
    # mix_with_embeddings (every layer and the embeddings, as ELMo).
    head.layers = "last"
    # Learned weights: normalize each layer first, over all tokens of the batch; and the factor of
    # the squares of the weights in the loss.
    head.mix_layer_norm = False
    head.mix_l2 = 0.0
    # Classification, multiple choice: the vector of an example: cls (its first token), last (its
    # last token, for causal models), mean, max (over its tokens).
    head.pool = "cls"
    # Classification, multiple choice: whether BERT's pooler (dense, tanh) follows. It reads the
    # last layer: with a BiLSTM, or with other layers, there is none.
    head.pooler = True
    # Dropout in the head; -1: model.dropout_rate.
    head.dropout_rate = -1.0
    # Multiple choice: one dropout mask for all choices of an example, as GPT's released code.
    head.share_dropout = False
    # Classification of pairs: encode both orders of a pair, and add the two vectors.
    head.both_orders = False
    # Causal models: the factor of the loss of the next token, added to the task's.
    head.lm_weight = 0.0
    # Tagging: fill rows with the sentences before and after (paper, section 5.3).
    head.document_context = False
    # Question answering: stride in tokens between the windows of a long text.
    head.doc_stride = 128
    head.max_query_length = 64
    head.max_answer_length = 30
    head.n_best = 20
    # Question answering: whether "no answer" is an answer (SQuAD 2.0); it is predicted if its score
    # exceeds the best span's by more than null_threshold (results.json has the best threshold).
    head.null_answers = False
    head.null_threshold = 0.0

    # Scores; the first is compared with the baseline and summarized over seeds.
    config.metrics = ("accuracy",)
    # What a paper reports for the first of `metrics`, which reports show beside it; 0: nothing.
    config.published_score = 0.0
    # Of which model, on which set, and where that is published.
    config.published_in = ""

    config.optimizer.learning_rate = 2e-5
    config.optimizer.warmup = "10%"
    config.log.every = "10%"
    config.eval.every = "1 epoch"
    config.checkpoint.every = "1 epoch"
    config.checkpoint.keep = 1
    config.checkpoint.best_metric = "accuracy"
    config.checkpoint.use = "best"
    return config


def classification() -> ConfigDict:
    """Returns the defaults for labels or numbers of texts and pairs of texts."""
    return finetuning("classification")


def tagging(tags: str = "entities") -> ConfigDict:
    """Returns the defaults for tags of words: of `entities`, or of `words` such as parts of speech.

    Raises:
      UserError: for another kind of tags.
    """
    if tags not in ("entities", "words"):
        raise UserError(f"Unknown tags {tags!r}. Available: entities, words.")
    config = finetuning("tagging")
    # JSON lines: the default names; CoNLL: the first and the last column, or numbers from 0.
    config.data.text_a = ""
    config.data.label = ""
    config.data.batch_by = "tokens"
    config.head.entities = tags == "entities"
    config.metrics = ("f1", "precision", "recall", "accuracy")
    if tags == "words":
        config.metrics = ("accuracy",)
    config.checkpoint.best_metric = config.metrics[0]
    return config


def span() -> ConfigDict:
    """Returns the defaults for answers that are spans of a text (paper, section 4.2)."""
    config = finetuning("span")
    config.max_length = 384
    config.optimizer.learning_rate = 5e-5
    config.metrics = ("f1", "exact_match")
    config.checkpoint.best_metric = "f1"
    return config


def multiple_choice() -> ConfigDict:
    """Returns the defaults for the choice of an ending (paper, section 4.4)."""
    config = finetuning("multiple_choice")
    config.data.text_a = "sent1"
    config.data.text_b = "sent2"
    config.global_batch_size = 16
    return config
