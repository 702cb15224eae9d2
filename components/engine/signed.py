"""Pickles in files that other programs may write. A key of the job signs each pickle, because pickles can run code."""

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
    """Unpickle the output of `dumps`. Raise InfeedError if the signature is wrong."""
    pickled = content[_SIGNATURE_BYTES:]
    if not hmac.compare_digest(hmac.digest(key, pickled, "sha256"), content[:_SIGNATURE_BYTES]):
        do = "prevent other programs from writing there, and run again"
        raise InfeedError("an intermediate result was modified", where=where, do=do)
    return pickle.loads(pickled)
