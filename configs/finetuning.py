"""What all fine-tuning shares: the fields, with the paper's values (section 4 and appendix A.3).

Not a configuration by itself: classification.py, tagging.py, span.py, multiple_choice.py are for
files of your own, glue.py, squad.py, swag.py, ner.py and chinese.py for published sets.

    python -m bert_jax.main --config=configs/classification.py --config.init_from=BERT \\
        --config.data.train=train.tsv --config.data.eval=dev.tsv --workdir=DIR

`init_from` decides the model's sizes and the vocabulary. The paper tries batches of 16 and 32,
rates of 5e-5, 3e-5 and 2e-5, and 2, 3 and 4 epochs, and takes the best on the evaluation split. All
other fields are those of base.py, which explains them; `eval.batches` does not count here, since
all examples are evaluated.
"""

from ml_collections import ConfigDict

from configs import base


def get_config(task: str) -> ConfigDict:
    config = base.get_config()
    config.task = task
    config.steps = 1
    config.epochs = 3.0
    # Runs with seeds `seed`, `seed` + 1, ...; each in a folder of its own in the workdir.
    config.seeds = 1
    # The longest row: (sequence length, 1.0).
    config.phases = ((128, 1.0),)
    config.global_batch_size = 32
    # So many layers, from the last one down, and the pooler start anew, not from `init_from`.
    config.reinit_layers = 0

    config.data = data = ConfigDict()
    # Files; for taggers and published sets also tfds:NAME[SPLIT] of tensorflow-datasets.
    data.train = ""
    data.eval = ""
    # More files to evaluate on: NAME=FILE, ...; their scores are called NAME_...
    data.more_eval = ()
    # Columns by name, or by number from 0 where there is no header; empty: there is none.
    data.text_a = "text_a"
    data.text_b = ""
    data.label = "label"
    data.id = ""
    # Several labels in one column are told apart by this; empty: a row has one label.
    data.label_separator = ""
    # Multiple choice: columns of the endings, in order.
    data.endings = ()
    # A row of GLUE or CHINESE in bert_jax.examples.text_tasks, which knows columns and labels;
    # msra_ner, whose words are characters; cmrc2018, which has scores of its own.
    data.published = ""
    # A vocab.txt or .model; empty: that of `init_from`.
    data.vocab = ""
    data.lowercase = True
    # What all batches have alike: `rows`, or `tokens`, which is for losses of words: a batch of
    # short sentences then has more of them than global_batch_size, one of long sentences fewer.
    data.batches = "rows"
    # Rows are padded to the first of these that is long enough, and to the longest row allowed.
    data.lengths = (32, 48, 64, 96, 128, 192, 256, 384)

    # What a head has beside its dense layer.
    config.head = head = ConfigDict()
    # Of classification: `single`, `multi` (any number of labels) or `regression`.
    head.labels = "single"
    # Of tagging: whether tags are those of entities (O, B-TYPE, I-TYPE, ...), or say each for
    # itself what a word is.
    head.entities = True
    # Of tagging: linear, crf, bilstm, bilstm_crf.
    head.tagging = "linear"
    # What tagging reads of the encoder: last, embeddings, second_to_last, sum_last_4,
    # concat_last_4, sum_all, scalar_mix (Table 7 of the paper).
    head.layers = "last"
    head.lstm_size = 768
    head.lstm_layers = 2
    # Tagging: fill rows with the sentences before and after (section 5.3).
    head.document_context = False
    # Question answering: tokens from one window of a long text to the next one.
    head.doc_stride = 128
    head.max_query_length = 64
    head.max_answer_length = 30
    head.n_best = 20
    # Question answering: whether "no answer" is an answer (SQuAD 2.0).
    head.null_answers = False
    # "No answer" it is where its score exceeds the best span's by more than this; results.json has
    # the best one for the evaluation split.
    head.null_threshold = 0.0

    # Scores; the first is compared with the baseline and summed up over seeds.
    # checkpoint.best_metric says which checkpoint is best.
    config.metrics = ("accuracy",)

    config.optimizer.learning_rate = 2e-5
    config.optimizer.warmup = "10%"
    config.log.every = "10%"
    config.eval.every = "1 epoch"
    config.checkpoint.every = "1 epoch"
    config.checkpoint.keep = 1
    config.checkpoint.best_metric = "accuracy"
    config.checkpoint.use = "best"
    return config
