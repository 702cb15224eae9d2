"""Pieces of words, by tokenizers that live inside the graph."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.transform.feature import FlatColumn
from infeed.components.transform.kinds.text import Subwords

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

tensorflow_text = pytest.importorskip("tensorflow_text", reason="the extra `text` is not installed")

Transform = Callable[..., dict[str, np.ndarray]]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "fox", "the", "!", "ete"]
TEXTS = [b"The unaffable fox!", None, "été xyz".encode(), b""]
SCORES = {"\u2581the": -1.0, "\u2581": -2.0, "\u2581fox": -1.5, **dict.fromkeys("foxthe", -3.0)}


@pytest.fixture
def vocabulary(tmp_path: Path) -> str:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A sentencepiece model of a few pieces, as its protobuf is encoded."""
    special = [_piece("<unk>", 0.0, 2), _piece("<s>", 0.0, 3), _piece("</s>", 0.0, 3)]
    pieces = [*special, *(_piece(piece, score, 1) for piece, score in SCORES.items())]
    unigram = _message(2, _number(3, 1))
    normalizer = _message(3, _message(1, b"identity") + _number(3, 1) + _number(4, 1) + _number(5, 1))
    path = tmp_path / "sp.model"
    path.write_bytes(b"".join(pieces) + unigram + normalizer)
    return str(path)


def _piece(piece: str, score: float, kind: int) -> bytes:
    return _message(1, _message(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind))


def _message(field: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([field << 3 | 2, len(content)]) + content


def _number(field: int, value: int) -> bytes:
    return bytes([field << 3, value])


def of_bert(vocabulary: str, text: bytes) -> list[int]:
    """What BERT's own tokenizer in tensorflow-text makes of a text, which looks its pieces up in a table."""
    tokenizer = tensorflow_text.BertTokenizer(vocabulary, lower_case=True, token_out_type=tf.int64)
    pieces: list[int] = tokenizer.tokenize([text]).merge_dims(1, 2).to_list()[0]
    return pieces


def test_wordpieces_are_those_of_bert(vocabulary: str, transform: Transform) -> None:
    found = transform({"x": TEXTS}, [Subwords("x", vocabulary)])["x"]
    assert [list(row) for row in found] == [of_bert(vocabulary, text or b"") for text in TEXTS]
    assert list(found[0]) == [8, 4, 5, 6, 7, 9]


def test_begin_and_end_stay_where_rows_are_cut(vocabulary: str, transform: Transform) -> None:
    features = [Subwords("x", vocabulary, length=5, begin="[CLS]", end="[SEP]", pad=0)]
    found = transform({"x": TEXTS}, features)["x"]
    assert found.tolist() == [[2, 8, 4, 5, 3], [2, 3, 0, 0, 0], [2, 10, 1, 3, 0], [2, 3, 0, 0, 0]]
    assert found.dtype == np.int64


def test_capitals_and_accents_stay_where_they_matter(vocabulary: str, transform: Transform) -> None:
    assert list(transform({"x": [b"The the"]}, [Subwords("x", vocabulary, lower=False)])["x"][0]) == [1, 8]


def test_sentencepieces_are_those_of_the_model(model: str, transform: Transform) -> None:
    texts = [b"the fox fo", b"zz", None]
    feature = Subwords("x", model, tokenizer="sentencepiece", begin="<s>", end="</s>", length=7, pad=99)
    found = transform({"x": texts}, [feature])["x"]
    own = tensorflow_text.SentencepieceTokenizer(Path(model).read_bytes(), add_bos=True, add_eos=True)
    expected = own.tokenize([text or b"" for text in texts]).to_tensor(99, shape=[None, 7])
    assert found.tolist() == expected.numpy().tolist()


def test_pieces_of_several_texts_follow_one_another(vocabulary: str, transform: Transform) -> None:
    found = transform({"x": [[b"the", b"fox"], []]}, [Subwords("x", vocabulary, values="all", length=3)])["x"]
    assert found.tolist() == [[8, 7, 0], [0, 0, 0]]


@pytest.mark.parametrize("tokenizer", ["wordpiece", "sentencepiece"])
def test_a_saved_graph_needs_no_file(tokenizer: str, vocabulary: str, model: str, tmp_path: Path) -> None:
    file = Path(vocabulary if tokenizer == "wordpiece" else model)
    feature = Subwords("x", str(file), tokenizer=tokenizer)  # type: ignore[arg-type]
    module = tf.Module()
    module.pieces = tf.function(
        lambda texts: feature.prepare([FlatColumn("x", texts, texts != "")]).values, [tf.TensorSpec([None], tf.string)]
    )
    expected = module.pieces(tf.constant(["the fox"])).numpy().tolist()
    tf.saved_model.save(module, str(tmp_path / "saved"))
    file.unlink()
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert loaded.pieces(tf.constant(["the fox"])).numpy().tolist() == expected
    assert len(expected) == 2


def test_a_file_that_is_not_what_it_should_be(vocabulary: str, tmp_path: Path, transform: Transform) -> None:
    other = tmp_path / "other.txt"
    other.write_text("a\nb\n")
    for feature, message in (
        (Subwords("x", str(other)), r"there is no piece '\[UNK\]'"),
        (Subwords("x", str(other), tokenizer="sentencepiece"), "no sentencepiece model"),
        (Subwords("x", vocabulary, begin="<s>"), "there is no piece '<s>'"),
        (Subwords("x", str(tmp_path / "none.txt")), "there is no file"),
    ):
        with pytest.raises(InfeedError, match=message):
            transform({"x": TEXTS}, [feature])


def test_the_extra_is_named_where_it_is_missing(
    vocabulary: str, transform: Transform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    with pytest.raises(InfeedError, match=r"(?s)tensorflow-text is not installed.*pip install 'tfx-infeed\[text\]'"):
        transform({"x": TEXTS}, [Subwords("x", vocabulary)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 2, "begin": "[CLS]", "end": "[SEP]"}, "length is 2"),
        ({"tokenizer": "bpe"}, "tokenizer is 'bpe'"),
        ({"pad": -1}, "pad is -1"),
        ({"values": "by_position"}, "values is 'by_position'"),
    ],
)
def test_options_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        Subwords("x", "vocab.txt", **options)  # type: ignore[arg-type]
