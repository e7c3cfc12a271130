"""Files of examples, written and read in one call."""

import json
from collections import Counter

import pytest


@pytest.fixture
def read_file(tmp_path):
    """Writes a file and reads its examples, and what was counted."""

    def read(reader, content, name, **arguments):
        path, counts = tmp_path / name, Counter()
        if not isinstance(content, bytes):
            content = (content if isinstance(content, str) else json.dumps(content)).encode()
        path.write_bytes(content)
        return list(reader(str(path), counts=counts, **arguments)), +counts

    return read
