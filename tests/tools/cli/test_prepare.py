"""The flags of `prepare` that exclude or need each other, one line each."""

import pytest

from bert_jax.tools.cli import prepare

# ml_collections loads configuration files by it.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--data_dir is missing: the folder for vocabulary and shards."),
        (["--merge", "--task=0/2"], "--merge and --task=0/2 exclude each other"),
        (["--runner=DirectRunner", "--task=0/2"], "--runner and --task=0/2 exclude each other"),
        (["--runner=Flink"], "'Flink' should be one of <DirectRunner|DataflowRunner|FlinkRunner|"),
        (["--", "--parallelism=2"], "--parallelism=2 after -- is for the engine of --runner"),
        (["--merge"], "has no unfinished work of tasks"),
    ],
)
def test_flags_are_refused(flags, message, tmp_path):
    words = ["prepare", "--config=configs/tiny.py", *flags]
    if flags:
        words.insert(2, f"--data_dir={tmp_path}")
    with pytest.raises(ValueError) as error:
        prepare.main(words)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not any(tmp_path.iterdir())
