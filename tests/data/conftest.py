"""What the tests of data/ and text/ prove, and where.

    property                                                     file
    every row once an epoch, batches a function of (seed, n)     corpus/test_corpus_rows,
                                                                 labelled/test_batching
    the orders never change                                      test_permutation,
                                                                 corpus/test_corpus_rows
    streams continue from batch to batch                         corpus/test_corpus_rows,
                                                                 corpus/test_streams
    the batch form, against loops                                test_batch, corpus/test_shards
    static instances are those of the released program           corpus/test_static_instances
    pairs have the fractions of the paper; no sentence is lost   corpus/test_pairs
    each form of rows holds the whole text once                  corpus/test_text_rows,
                                                                 corpus/test_streams
    held-out documents share no text with those trained on       corpus/test_documents
    packed and plain rows have the same examples                 corpus/test_packing
    the form of a text is found out                              text/test_form
    packed labelled rows have the same losses and gradients      labelled/test_packed
    phrases are units, longest first from the left               text/test_lexicon
    rows store the units of phrases, statistics count them       corpus/test_phrases
    equal bytes for any processes and engines                    corpus/test_prepare,
                                                                 corpus/test_beam
    interrupted and killed work is continued                     corpus/test_prepare,
                                                                 corpus/test_command
    a damaged file or bit is found and named                     corpus/test_manifest,
                                                                 corpus/test_shards
    other settings or texts are refused                          corpus/test_prepare
    readers: forms, repairs that are counted, one-line errors    labelled/test_tables,
      with the line                                              test_conll, test_questions,
                                                                 test_choices, test_reading,
                                                                 test_published_sets,
                                                                 test_tfds_examples,
                                                                 test_parquet_examples
    tags of any scheme become IOB2, as seqeval reads them        labelled/test_tags
    rows of labelled examples, against rows written by hand      labelled/test_encode_*
    answers are those of a search over all spans                 labelled/test_spans
    published files come back whole, from the file to answers    labelled/test_real_files
    ids are those of the released tokenizers                     text/test_tokenization,
                                                                 text/test_gpt_tokenizer,
                                                                 text/test_sentencepiece_tokenizer
    each id has its characters in the text, for all tokenizers   text/test_tokenizers
    documents do not depend on how files are cut                 text/test_sources,
                                                                 text/test_json_lines,
                                                                 text/test_tfds,
                                                                 text/test_parquet
    malformed text is repaired, skipped or named, and counted    text/test_sources,
                                                                 text/test_json_lines
    the same text gives the same vocabulary                      text/test_vocabulary,
                                                                 text/test_word_tokenizer
    docstrings become prose, each sentence once                  text/test_installed_docs

tests/runs/ proves that runs on these data resume exactly, tests/tasks/ what becomes of the rows.
"""
