"""Clean texts, and compute tokens, indices and bags, inside a graph.

All functions take whole batches: texts [n]. Strings are UTF-8; invalid bytes become U+FFFD where characters are
examined.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

Array: TypeAlias = npt.NDArray[Any]

# White space as `str.isspace` has it; RE2's own `\s` is that of ASCII.
_SPACE = r"[\s\v\x1c-\x1f\x{85}\pZ]"
# What stands between words: all but letters, the marks upon them, digits and the underscore.
_BETWEEN_WORDS = r"[^\pL\pM\pN_]+"
_NOTHING = -1  # a mark that stands by itself


def trim(texts: tf.Tensor) -> tf.Tensor:
    """Remove white space at both ends."""
    return tf.strings.regex_replace(texts, rf"^{_SPACE}+|{_SPACE}+$", "")


def squeeze(texts: tf.Tensor) -> tf.Tensor:
    """Replace each run of white space by one space."""
    return tf.strings.regex_replace(texts, rf"{_SPACE}+", " ")


def strip_accents(texts: tf.Tensor) -> tf.Tensor:
    """Remove marks upon letters: é becomes e."""
    characters = tf.strings.unicode_decode(texts, "UTF-8")  # [n, (characters)] int32
    accented, bare = _bare_letters()
    at = tf.minimum(tf.searchsorted(accented, characters.values), len(accented) - 1)
    known = tf.equal(tf.gather(accented, at), characters.values)
    letters = characters.with_values(tf.where(known, tf.gather(bare, at), characters.values))
    letters = tf.ragged.boolean_mask(letters, letters.with_values(letters.values != _NOTHING))
    return tf.strings.unicode_encode(letters, "UTF-8")


@cache
def _bare_letters() -> tuple[Array, Array]:
    """Return code points of characters with marks, ascending, and the characters without them, int32 [n].

    A character is decomposed (Unicode's canonical form NFD), marks (characters of a combining class other than 0) are
    dropped, and the rest is composed again (NFC), so that syllables of Hangul stay what they are.
    """
    marked = {}
    for code in range(0x20000):  # no character beyond has a mark
        letters = unicodedata.normalize("NFD", chr(code))
        rest = "".join(letter for letter in letters if not unicodedata.combining(letter))
        if rest != letters:
            marked[code] = ord(unicodedata.normalize("NFC", rest)) if rest else _NOTHING
    return np.array(list(marked), np.int32), np.array(list(marked.values()), np.int32)


def tokens(texts: tf.Tensor, unit: str, ngrams: tuple[int, int] = (1, 1)) -> tf.RaggedTensor:
    """Return the tokens of each text, ragged [n, (tokens)] string.

    Args:
      unit: "words" (runs of letters, digits and underscores), "whitespace" (what white space separates) or
        "characters".
      ngrams: (least, most) tokens that follow one another and are joined to one, by a space or, of characters, by
        nothing; all of the least length come first. A text shorter than the least has none.
    """
    if unit == "characters":
        parts = tf.strings.unicode_split(texts, "UTF-8")
    elif unit == "whitespace":
        parts = tf.strings.split(squeeze(texts))
    else:
        parts = tf.strings.split(tf.strings.strip(tf.strings.regex_replace(texts, _BETWEEN_WORDS, " ")))
    if ngrams == (1, 1):
        return parts
    separator = "" if unit == "characters" else " "
    return tf.strings.ngrams(parts, tuple(range(ngrams[0], ngrams[1] + 1)), separator=separator)


def bag(indices: tf.RaggedTensor, size: int, *, binary: bool = False) -> tf.Tensor:
    """Count each index in each row, float32 [batch, size], or mark its presence by 1.

    Indices are int64 [batch, (tokens)], 0 to `size` - 1, or negative, which is counted nowhere.
    """
    rows = indices.nrows(out_type=tf.int64)
    cells = tf.where(indices.values < 0, indices.values, indices.value_rowids() * size + indices.values)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(cells, tf.float32), cells, rows * size)
    return tf.reshape(tf.minimum(counts, 1.0) if binary else counts, [rows, size])


def tf_idf(indices: tf.RaggedTensor, documents: Sequence[int] | Array, rows: int, *, smooth: bool = True) -> tf.Tensor:
    """Compute term frequency times inverse document frequency, float32 [batch, size], as in `tft.tfidf`.

        tf(t, row) = occurrences of t in the row / tokens in the row; 0 in a row without tokens
        idf(t)     = 1 + log((rows + 1) / (documents(t) + 1))     smooth
                   = 1 + log(rows / documents(t))                 not smooth; of a t that no document has: as if one had

    Args:
      indices: int64 [batch, (tokens)], 0 to size - 1, or negative: a token of the row that has no place.
      documents: [size], how many of the analyzed rows have each index.
      rows: analyzed rows, those without a token included.
    """
    counts = bag(indices, len(documents))
    lengths = tf.cast(indices.row_lengths(), tf.float32)[:, tf.newaxis]
    rows_with = np.asarray(documents, np.float64)
    share = (rows + 1) / (rows_with + 1) if smooth else rows / np.maximum(rows_with, 1)
    return tf.math.divide_no_nan(counts, lengths) * np.asarray(1 + np.log(share), np.float32)


def first_in_row(tokens: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
    """Return bool [n]: whether a token of [n] is the first of its kind in its row."""
    rows = tf.ragged.row_splits_to_segment_ids(splits)
    _, which = tf.unique(tf.strings.join([tf.strings.as_string(rows), tokens], "\x00"), tf.int64)
    count = tf.size(tokens, tf.int64)
    first = tf.math.unsorted_segment_min(tf.range(count), which, count)
    return tf.gather(first, which) == tf.range(count)
