"""Decode serialized tf.Examples and SequenceExamples to Python values, without TensorFlow.

The messages equal TensorFlow's. They are defined in a separate descriptor pool, because they would clash with
TensorFlow's in the default pool.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from infeed.components.dataset.manifest import ColumnType

# The fields of each message, numbered from 1 in this order. A protobuf map is a repeated pair of a key and a value.
_MESSAGES = {
    "BytesList": {"value": "repeated bytes"},
    "FloatList": {"value": "repeated float"},
    "Int64List": {"value": "repeated int64"},
    "Feature": {"bytes": "BytesList", "float": "FloatList", "int": "Int64List"},
    "FeaturePair": {"key": "bytes", "value": "Feature"},
    "Features": {"feature": "repeated FeaturePair"},
    "FeatureList": {"feature": "repeated Feature"},
    "FeatureListPair": {"key": "bytes", "value": "FeatureList"},
    "FeatureLists": {"feature_list": "repeated FeatureListPair"},
    "SequenceExample": {"features": "Features", "feature_lists": "FeatureLists"},
    # The outer structure alone, without parsing its content.
    "SequenceExampleOutside": {"features": "repeated bytes", "feature_lists": "repeated bytes"},
}
_ONE_OF = "Feature"  # a oneof of its fields
_PACKAGE = "infeed.tensorflow"


@dataclass(frozen=True)
class DecodedFeature:
    """The values of a feature: bytes, floats or ints. `type` is None if the record does not define it."""

    type: ColumnType | None
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Example:
    """The features of a record and, for a SequenceExample, the features of each step."""

    features: dict[str, DecodedFeature]
    steps: dict[str, tuple[DecodedFeature, ...]]


def decode_example(record: bytes) -> Example:
    """Decode a record. Features are sorted by name.

    Raises ValueError if the record is not a serialized tf.Example or SequenceExample.
    """
    try:
        # A tf.Example is a SequenceExample without steps, byte for byte.
        parsed = _parse("SequenceExample", record)
        features = {pair.key.decode(): _values_of(pair.value) for pair in parsed.features.feature}
        lists = parsed.feature_lists.feature_list
        steps = {pair.key.decode(): tuple(map(_values_of, pair.value.feature)) for pair in lists}
    except (DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a serialized tf.Example: {error}") from error
    return Example(dict(sorted(features.items())), dict(sorted(steps.items())))


def rewrite_example(record: bytes, *, sequence: bool = False) -> bytes:
    """Rewrite a tf.Example in canonical form: known fields in order, packed numbers, each feature once.

    With `sequence`, the record may be a SequenceExample. Raises ValueError if the record is neither.
    """
    try:
        parsed = _parse("SequenceExample", record)
    except DecodeError as error:
        raise ValueError(f"not a serialized tf.Example: {error}") from error
    if parsed.HasField("feature_lists") and not sequence:
        raise ValueError("a SequenceExample, not a tf.Example")
    parsed.DiscardUnknownFields()
    for pairs in (parsed.features.feature, parsed.feature_lists.feature_list):
        _keep_last(pairs)
    return bytes(parsed.SerializeToString())


def _keep_last(pairs: Any) -> None:
    """Keep the last value of each key of a map, and write all fields."""
    seen = set[bytes]()
    for place in reversed(range(len(pairs))):
        pair = pairs[place]
        if pair.key in seen:
            del pairs[place]
            continue
        seen.add(pair.key)
        pair.key = pair.key  # an omitted field becomes an empty field
        pair.value.SetInParent()


def is_example(record: bytes, *, sequence: bool) -> bool:
    """Return whether a record is a tf.Example or, with `sequence`, a SequenceExample.

    Unknown fields beside features are ignored, as in TensorFlow, because a later version may add them. A record of
    unknown fields alone is rejected, because arbitrary bytes often parse as unknown fields.
    """
    try:
        parsed = _parse("SequenceExampleOutside", record)
    except DecodeError:
        return False
    if parsed.feature_lists and not sequence:
        return False
    return bool(parsed.features or parsed.feature_lists or not record)


def _values_of(feature: Any) -> DecodedFeature:
    kind: ColumnType | None = feature.WhichOneof("kind")
    return DecodedFeature(kind, tuple(getattr(feature, kind).value) if kind else ())


def _parse(name: str, record: bytes) -> Any:
    message = _message_class(name)()
    with warnings.catch_warnings():
        # protobuf 3 only warns at a stray end of a group. Later versions raise an error.
        warnings.simplefilter("ignore", RuntimeWarning)
        if message.ParseFromString(record) != len(record):
            raise DecodeError("trailing bytes cannot be parsed")
    return message


@functools.cache
def _message_class(name: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto2")
    file.message_type.extend(_describe(message, fields.items()) for message, fields in _MESSAGES.items())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    described = pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
    if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 and later
        return message_factory.GetMessageClass(described)
    return message_factory.MessageFactory(pool).GetPrototype(described)


def _describe(name: str, fields: Iterable[tuple[str, str]]) -> descriptor_pb2.DescriptorProto:
    message = descriptor_pb2.DescriptorProto(name=name)
    for number, (field, kind) in enumerate(fields, start=1):
        added = message.field.add(name=field, number=number)
        *repeated, plain = kind.split()
        added.label = added.LABEL_REPEATED if repeated else added.LABEL_OPTIONAL
        added.options.packed = bool(repeated) and plain in ("float", "int64")
        if plain in _MESSAGES:
            added.type, added.type_name = added.TYPE_MESSAGE, f".{_PACKAGE}.{plain}"
        else:
            added.type = added.Type.Value(f"TYPE_{plain.upper()}")
        if name == _ONE_OF:
            added.oneof_index = 0
    if name == _ONE_OF:
        message.oneof_decl.add(name="kind")
    return message
