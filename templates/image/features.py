"""What becomes of the pictures, decided from a survey of the data.

A survey looks at the pictures before anything is ingested. Where you know better, return that instead:
`DecodeImage("image/encoded", height=64, width=64, channels=3)` needs no survey.

This file is read together with the config, before TensorFlow is loaded, so that you hear of a mistake within seconds.
Hence it does not import Keras, and the model has a file of its own.
"""

from __future__ import annotations

from infeed.components import Augment, DecodeImage, Feature, Label
from infeed.pipelines.surveys import ImageSurvey

# Larger pictures cost time and bring a small network nothing.
MAX_SIDE = 96


def features(survey: ImageSurvey) -> list[Feature]:
    """Pictures of the commonest size and depth, and the class to learn.

    The survey has `height`, `width` and `channels` of most pictures; `most` is how many of all `rows` are so. It also
    has the `classes`, and with `class_rows` how many pictures there are of each.
    """
    # All pictures become one size, because a batch of them is one tensor. `resize` says how: stretch, fit or crop.
    height, width = (min(side, MAX_SIDE) for side in (survey.height, survey.width))
    return [
        DecodeImage(height, width, survey.channels, resize=survey.resize),
        Label("label/text"),
    ]


def augmentation(survey: ImageSurvey) -> Augment:
    """Return the usual augmentation in proportion to the image size. Each epoch changes each image differently.

    Photos bear more: `crop=0.35` and `stretch=4 / 3` take windows of them, and `brightness=0.2` and `contrast=0.2`
    change their light. Without `augment` in the config, no picture is changed.
    """
    side = min(survey.height, survey.width, MAX_SIDE)
    return Augment(
        shift=max(1, side // 8),
        flip="none" if _shows_characters(survey.classes) else "horizontal",
        rotate=10.0,
        cutout=side // 4,  # a square of each picture is hidden, so that no single detail is relied on
    )


def _shows_characters(classes: tuple[str, ...]) -> bool:
    """Return whether the classes are characters, which mirroring would turn into others."""
    return all(len(name) == 1 or name.isdigit() for name in classes)
