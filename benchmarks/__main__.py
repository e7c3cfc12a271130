"""Measures speed, scores and memory, also of other programs that do the same work.

    python -m benchmarks.step --models=tiny,base                a training step
    python -m benchmarks.finetune --config.init_from=FOLDER \\
        --config.data.train=FILE --config.data.eval=FILE        fine-tuning
    python -m benchmarks.defaults TRAIN --evaluate=FILE --model=MODEL
                                                                settings of finetune
    python -m benchmarks.rates DATA --encoders=NAME=MODEL,...   rates by encoder and file
    python -m benchmarks.inference --model=MODEL --input=FILE   sentence vectors, predictions
    python -m benchmarks.exact --model=MODEL --input=FILE       exact vectors
    python -m benchmarks.recipe NAME=CONFIG ...                 what each learns in a given time
    python -m benchmarks.entry DIR                              checks an entry of that race
    python -m benchmarks.prepare                                from text to shards
    python -m benchmarks.retrieval --model=MODEL --out=DIR       dense, sparse, ColBERT, reranked
    python -m benchmarks.speech FOLDER                          text of transcripts, for grammar
    python -m benchmarks.serve --model=MODEL                    requests of a server

They run in a checkout. Add --help to one of them for its flags.
"""

if __name__ == "__main__":
    print(__doc__)
