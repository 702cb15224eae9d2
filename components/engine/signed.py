"""Pickles that travel through files which other programs may write: each is signed with a key of the job."""

from __future__ import annotations

import hashlib
import hmac
import pickle
from typing import Any

from infeed.components.base.errors import InfeedError

_SIGNATURE_BYTES = hashlib.sha256().digest_size


def dumps(key: bytes, value: Any) -> bytes:
    """Pickle a value, with its signature in front."""
    pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return hmac.digest(key, pickled, "sha256") + pickled


def loads(key: bytes, content: bytes, where: str) -> Any:
    """Unpickle what `dumps` returned. Raises InfeedError if the content does not have this signature."""
    pickled = content[_SIGNATURE_BYTES:]
    if not hmac.compare_digest(hmac.digest(key, pickled, "sha256"), content[:_SIGNATURE_BYTES]):
        do = "keep other programs from writing there, and run again"
        raise InfeedError("an intermediate result was modified", where=where, do=do)
    return pickle.loads(pickled)
