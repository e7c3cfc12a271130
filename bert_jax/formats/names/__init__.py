"""Names of weights in other programs: by model name, then by format.

`NAMES["bert"]["huggingface"]` is the table between BERT's parameters and the tensors of a Hugging
Face checkpoint. The keys are those of `models.MODELS` and of `formats.FORMATS`; no other program
has a model without a row.
"""

from collections.abc import Mapping

from bert_jax.formats.names import bert, bert_relatives, elmo, gpt, modernbert
from bert_jax.formats.weight_table import WeightTable

NAMES: dict[str, Mapping[str, WeightTable]] = {
    "bert": {"huggingface": bert.HUGGINGFACE, "google": bert.GOOGLE},
    "distilbert": {"huggingface": bert_relatives.DISTILBERT},
    "electra": {"huggingface": bert_relatives.ELECTRA},
    "roberta": {"huggingface": bert_relatives.ROBERTA},
    "xlm_roberta": {"huggingface": bert_relatives.XLM_ROBERTA},
    "modernbert": {"huggingface": modernbert.HUGGINGFACE},
    "gpt": {"huggingface": gpt.HUGGINGFACE, "openai": gpt.OPENAI},
    "elmo": {"bilm": elmo.BILM},
}
