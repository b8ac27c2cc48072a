"""A file whose first line is broken says what is wrong with that line."""

import pytest

from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.errors import UnreadablePackageError


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"prompt": NaN}\n', "NaN is no JSON number"),
        (b'{"a": 1, "a": 2}\n', "appears twice"),
        (b"[1]\n", "rows.jsonl:1"),
        (b'{"prompt": "x"\n', "rows.jsonl:1"),
        (b"", "has no row"),
    ],
)
def test_the_reason_is_named(tmp_path, content, words):
    (tmp_path / "rows.jsonl").write_bytes(content)
    with pytest.raises(UnreadablePackageError) as caught:
        read_environment(str(tmp_path / "rows.jsonl"))
    assert words in caught.value.message
