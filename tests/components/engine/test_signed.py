from __future__ import annotations

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.engine import signed


@pytest.mark.parametrize("changed", [b"", b"theirs", signed.dumps(b"their key", "mine")])
def test_only_what_the_key_has_signed_is_unpickled(changed: bytes) -> None:
    assert signed.loads(b"key", signed.dumps(b"key", "mine"), "file") == "mine"
    with pytest.raises(InfeedError, match="modified") as raised:
        signed.loads(b"key", changed, "file")
    assert raised.value.where == "file"
