"""Graph operations that clean texts and compute tokens, indices and bags.

All functions take whole batches: texts [n]. Strings are UTF-8. Functions that examine characters replace invalid bytes
by U+FFFD.
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

# White space as in `str.isspace`. RE2's `\s` covers only ASCII.
_SPACE = r"[\s\v\x1c-\x1f\x{85}\pZ]"
# Text between words: everything but letters, their marks, digits and the underscore.
_BETWEEN_WORDS = r"[^\pL\pM\pN_]+"
_NOTHING = -1  # a mark on its own, which is removed


def trim(texts: tf.Tensor) -> tf.Tensor:
    """Remove white space at both ends."""
    return tf.strings.regex_replace(texts, rf"^{_SPACE}+|{_SPACE}+$", "")


def squeeze(texts: tf.Tensor) -> tf.Tensor:
    """Replace each run of white space by one space."""
    return tf.strings.regex_replace(texts, rf"{_SPACE}+", " ")


def strip_accents(texts: tf.Tensor) -> tf.Tensor:
    """Remove marks from letters: é becomes e."""
    characters = tf.strings.unicode_decode(texts, "UTF-8")  # [n, (characters)] int32
    accented, bare = _bare_letters()
    at = tf.minimum(tf.searchsorted(accented, characters.values), len(accented) - 1)
    known = tf.equal(tf.gather(accented, at), characters.values)
    letters = characters.with_values(tf.where(known, tf.gather(bare, at), characters.values))
    letters = tf.ragged.boolean_mask(letters, letters.with_values(letters.values != _NOTHING))
    return tf.strings.unicode_encode(letters, "UTF-8")


@cache
def _bare_letters() -> tuple[Array, Array]:
    """Return the code points of characters with marks, ascending, and the characters without marks, int32 [n].

    A character is decomposed (Unicode's canonical form NFD), marks (characters with a combining class other than 0)
    are dropped, and the rest is composed again (NFC), which preserves Hangul syllables.
    """
    marked = {}
    for code in range(0x20000):  # later code points have no marks
        letters = unicodedata.normalize("NFD", chr(code))
        rest = "".join(letter for letter in letters if not unicodedata.combining(letter))
        if rest != letters:
            marked[code] = ord(unicodedata.normalize("NFC", rest)) if rest else _NOTHING
    return np.array(list(marked), np.int32), np.array(list(marked.values()), np.int32)


def tokens(texts: tf.Tensor, unit: str, ngrams: tuple[int, int] = (1, 1)) -> tf.RaggedTensor:
    """Return the tokens of each text, ragged [n, (tokens)] string.

    Args:
      unit: "words" (runs of letters, digits and underscores), "whitespace" (text between white space) or
        "characters".
      ngrams: (least, most) numbers of consecutive tokens to join, by a space, or for characters by nothing. Shorter
          n-grams come first. A text with fewer than `least` tokens has none.
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

    Indices are int64 [batch, (tokens)], 0 to `size` - 1. Negative indices are not counted.
    """
    rows = indices.nrows(out_type=tf.int64)
    cells = tf.where(indices.values < 0, indices.values, indices.value_rowids() * size + indices.values)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(cells, tf.float32), cells, rows * size)
    return tf.reshape(tf.minimum(counts, 1.0) if binary else counts, [rows, size])


def tf_idf(indices: tf.RaggedTensor, documents: Sequence[int] | Array, rows: int, *, smooth: bool = True) -> tf.Tensor:
    """Compute term frequency times inverse document frequency, float32 [batch, size], as in `tft.tfidf`.

        tf(t, row) = occurrences of t in the row / tokens in the row; 0 in a row without tokens
        idf(t)     = 1 + log((rows + 1) / (documents(t) + 1))     smooth
                   = 1 + log(rows / documents(t))                 not smooth; documents(t) is at least 1

    Args:
      indices: int64 [batch, (tokens)], 0 to size - 1. Negative for a token outside the vocabulary.
      documents: [size], number of analyzed rows with each index.
      rows: number of analyzed rows, including rows without a token.
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
