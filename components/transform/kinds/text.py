"""Features of text: bags of tokens, and subwords for pretrained language models.

    BagOfWords("review", clean=(LowerCase(), Tokens(ngrams=(1, 2))), size=10_000, weights="tf_idf")
    Subwords("review", file="bert/vocab.txt", length=128, begin="[CLS]", end="[SEP]")
    Subwords("review", file="sp.model", tokenizer="sentencepiece", length=128)

The subword tokenizer is part of the served graph and needs the extra `text`. Programs that load such a graph need the
ops of tensorflow-text: in Python, `import tensorflow_text` first. Official images of TensorFlow Serving include them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from infeed.components.base.checks import at_least, require
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.transform.analyses import ByKey, as_word
from infeed.components.transform.feature import FlatColumn, Tables, as_strings, tf
from infeed.components.transform.kinds.clean import Prepared
from infeed.components.transform.kinds.encode import Looked

_UNKNOWN = "[UNK]"
_FIRST, _AGAIN = b"first", b"again"


@dataclass(frozen=True)
class BagOfWords(Looked):
    """Count or weigh the tokens of the vocabulary in a row, float32 [batch, n + `oov`].

    Index i is token i + 1 of `Vocabulary`, the most frequent first. Indices from n on are shared by tokens outside the
    vocabulary, which `oov=0` drops. A missing text is all 0.

        "counts"   occurrences in the row
        "binary"   1 if the token occurs
        "tf_idf"   occurrences / tokens of the row * (1 + log((rows + 1) / (rows with it + 1)))

    The last is the formula of `tft.tfidf`; `smooth=False` drops both "+ 1" in the logarithm. Tokens of the row include
    those outside the vocabulary, and rows include those without a token. It requires `oov=0`.
    """

    oov: int = 0
    weights: Literal["counts", "binary", "tf_idf"] = "counts"
    smooth: bool = True
    kind: Literal["bag_of_words"] = field(default="bag_of_words", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.length is None, self, "length", "leave it out: a row's tokens become one vector")
        require(self.values != "by_position", self, "values", 'give it as "one" or "all": a bag has no positions')
        counted = self.weights != "tf_idf" or self.oov == 0
        require(counted, self, "oov", 'give it as 0, or give weights as "counts" or "binary"')

    def cardinality(self, values: int) -> int:
        """Return the width of the vector for a vocabulary of `values` values."""
        return values + self.oov

    def analyzed(self, column: FlatColumn) -> FlatColumn:
        """Return the tokens with keys that mark the first occurrence in a row, which counts the row."""
        if self.weights != "tf_idf":
            return column
        from infeed.components.transform.operators.text import first_in_row

        return column._replace(keys=tf.where(first_in_row(as_strings(column), column.row_splits), _FIRST, _AGAIN))

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        from infeed.components.transform.operators.text import bag, tf_idf

        counts = found[0].overall if isinstance(found[0], ByKey) else found[0]
        words = self.words(counts)
        places = self.index(column, counts, tables) - 1  # -1 has no place
        rows = tf.RaggedTensor.from_row_splits(places, column.row_splits, validate=False)
        if self.weights != "tf_idf":
            return bag(rows, self.cardinality(len(words)), binary=self.weights == "binary")
        first = dict(found[0].of.items())[_FIRST].counts
        rows_with = {as_word(value): number for value, number in first.items()}
        return tf_idf(rows, [rows_with[word] for word in words], counts.rows, smooth=self.smooth)

    def shape(self, column: FlatColumn, result: Any) -> Any:
        return result

    def domain(self, found: Sequence[Any]) -> None:
        return None


@dataclass(frozen=True)
class Subwords(Prepared):
    """Encode text as subword indices of a pretrained tokenizer, int64, ragged [batch, None].

    With `length`, the result is [batch, length]: longer lists are truncated before `end`, and shorter lists are padded.
    A missing text has no pieces except `begin` and `end`. Unknown text becomes the tokenizer's unknown piece.

    Attributes:
      file: vocabulary with one piece per line, such as BERT's vocab.txt, or a trained model of sentencepiece. Transform
        copies the content into the graph.
      tokenizer: "wordpiece" splits at white space and punctuation, and then repeatedly takes the longest known piece.
        "sentencepiece" applies its trained model.
      lower: whether wordpiece converts to lower case and removes accents, as for BERT's uncased models.
      begin, end: pieces at the begin and the end of each row, such as "[CLS]" and "[SEP]"; "" for none.
      pad: index that fills rows up to `length`.
    """

    column: str
    file: str
    output: str | None = None
    tokenizer: Literal["wordpiece", "sentencepiece"] = "wordpiece"
    lower: bool = True
    begin: str = ""
    end: str = ""
    pad: int = 0
    kind: Literal["subwords"] = field(default="subwords", kw_only=True, repr=False)
    makes_lists = True
    takes = ("bytes",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.file, str) and self.file, self, "file", "give the path of a file")
        require(self.values != "by_position", self, "values", 'give it as "one" or "all"')
        at_least(self, 0, "pad")
        marks = bool(self.begin) + bool(self.end)
        require(self.length is None or self.length > marks, self, "length", "use a larger length, with room for text")

    @property
    def files(self) -> tuple[str, ...]:
        return (self.file,)

    def prepare(self, columns: Sequence[FlatColumn]) -> FlatColumn:
        """Return the column of subwords, int64, with begin and end."""
        (column,) = columns
        pieces_of, index_of = _wordpiece(self) if self.tokenizer == "wordpiece" else _sentencepiece(self)
        pieces = pieces_of(tf.where(column.present, column.values, ""))  # ragged [texts, (pieces)]
        if column.splits is not None:
            pieces = tf.RaggedTensor.from_row_splits(pieces, column.splits, validate=False).merge_dims(1, 2)
        begin, end = ([index_of(piece)] if piece else [] for piece in (self.begin, self.end))
        if self.length is not None:
            pieces = pieces[:, : self.length - len(begin) - len(end)]
        rows = [pieces.nrows(out_type=tf.int64), 1]
        marks = (tf.tile(tf.constant([mark], tf.int64, [1, len(mark)]), rows) for mark in (begin, end))
        whole = tf.concat([next(marks), pieces, next(marks)], 1)
        return column._replace(
            values=whole.values, present=tf.ones_like(whole.values, tf.bool), splits=whole.row_splits
        )

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        return column.values

    def shape(self, column: FlatColumn, result: Any) -> Any:
        ragged = tf.RaggedTensor.from_row_splits(result, column.splits, validate=False)
        return ragged if self.length is None else ragged.to_tensor(self.pad, shape=[None, self.length])


# string [n] -> ragged int64 [n, (pieces)], and a piece -> its index
_Tokenizer: TypeAlias = tuple[Callable[[Any], Any], Callable[[str], int]]


def _wordpiece(feature: Subwords) -> _Tokenizer:
    places = {piece: place for place, piece in enumerate(_read(feature).decode("utf-8").splitlines())}
    if _UNKNOWN not in places:
        raise InfeedError(
            f"there is no piece {_UNKNOWN!r}", where=feature.file, do="name a vocabulary with one wordpiece per line"
        )
    # Its vocabulary is a constant of the graph, not a table of its own that each loader would have to find.
    tokenizer = tensorflow_text(feature).FastBertTokenizer(
        list(places), token_out_type=tf.int64, lower_case_nfd_strip_accents=feature.lower
    )
    return tokenizer.tokenize, lambda piece: _known(feature, piece, places.get(piece))


def _sentencepiece(feature: Subwords) -> _Tokenizer:
    make, model = tensorflow_text(feature).SentencepieceTokenizer, _read(feature)
    with tf.init_scope():
        try:
            eager = make(model)
            unknown = int(eager.string_to_id("\x00"))
        except tf.errors.OpError as error:
            raise InfeedError("no sentencepiece model", where=feature.file, do="name a trained .model file") from error

    def index_of(piece: str) -> int:
        with tf.init_scope():
            index = int(eager.string_to_id(piece))
        return _known(feature, piece, None if index == unknown else index)

    # Made anew within the graph: one from outside would be a resource that whoever saves the graph has to track.
    return lambda texts: tf.cast(make(model).tokenize(texts), tf.int64), index_of


def _known(feature: Subwords, piece: str, index: int | None) -> int:
    if index is None:
        raise InfeedError(f"there is no piece {piece!r}", where=feature.file, do="correct begin or end")
    return index


def _read(feature: Subwords) -> bytes:
    try:
        return files.read_bytes(feature.file)
    except FileNotFoundError as error:
        raise InfeedError(f"there is no file {feature.file!r}", where=f"{feature}", do="correct the path") from error


def tensorflow_text(feature: object) -> Any:
    """Import the package; raise InfeedError if it is not installed."""
    try:
        import tensorflow_text
    except ImportError as error:
        raise InfeedError(
            "tensorflow-text is not installed", where=f"{feature}", do="pip install 'tfx-infeed[text]'"
        ) from error
    return tensorflow_text
