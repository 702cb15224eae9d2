"""What becomes of the pictures, decided from a survey of the data."""

from __future__ import annotations

from infeed.components import Augment, DecodeImage, Feature, Label
from infeed.pipelines.survey import ImageSurvey

# Larger pictures cost time and bring a small network nothing.
MAX_SIDE = 96


def features(survey: ImageSurvey) -> list[Feature]:
    """Pictures of the commonest size and depth, and the class to learn."""
    height, width = (min(side, MAX_SIDE) for side in (survey.height, survey.width))
    return [
        DecodeImage(column="image/encoded", height=height, width=width, channels=survey.channels),
        Label("label/text"),
    ]


def augmentation(survey: ImageSurvey) -> Augment:
    """The classic recipe, in proportion to the side of the pictures."""
    side = min(survey.height, survey.width, MAX_SIDE)
    return Augment(
        shift=max(1, side // 8),
        flip="none" if _shows_characters(survey.classes) else "horizontal",
        rotate=10.0,
        cutout=side // 4,
    )


def _shows_characters(classes: tuple[str, ...]) -> bool:
    """A mirrored letter or digit is another sign, or none; a mirrored cat is a cat."""
    return all(len(name) == 1 or name.isdigit() for name in classes)
