"""Features of a folder of images, chosen from a survey of the data.

The survey reads the images before ingest. Fixed features need no survey:
`DecodeImage(height=64, width=64, channels=3)`.

The command reads this file with the config, before it loads TensorFlow, so that it reports a mistake within seconds.
For the same reason this file does not import Keras, and the model is in a separate file.
"""

from __future__ import annotations

from infeed.components import Augment, DecodeImage, Feature, Label
from infeed.pipelines.surveys import ImageSurvey

# Larger images take more time and do not help a small network.
MAX_SIDE = 96


def features(survey: ImageSurvey) -> list[Feature]:
    """Return images of the most frequent size and depth, and the label.

    The survey has the most frequent `height`, `width` and `channels`, and the number of images with them, `most`, of
    all `rows`. It also has the `classes`, and the number of images of each, `class_rows`.
    """
    # All images get one size, because a batch is one tensor. `resize` is "stretch", "fit" or "crop".
    height, width = (min(side, MAX_SIDE) for side in (survey.height, survey.width))
    return [
        DecodeImage(height, width, survey.channels, resize=survey.resize),
        Label("label/text"),
    ]


def augmentation(survey: ImageSurvey) -> Augment:
    """Return augmentation in proportion to the image size. Each epoch changes each image differently.

    For photos, add random windows (`crop=0.35`, `stretch=4 / 3`) and light (`brightness=0.2`, `contrast=0.2`). Without
    `augment` in the config, training does not change images.
    """
    side = min(survey.height, survey.width, MAX_SIDE)
    return Augment(
        shift=max(1, side // 8),
        flip="none" if _shows_characters(survey.classes) else "horizontal",
        rotate=10.0,
        cutout=side // 4,  # hides a square of each image, so that the model does not rely on a single detail
    )


def _shows_characters(classes: tuple[str, ...]) -> bool:
    """Report whether the classes are characters, which mirroring would change."""
    return all(len(name) == 1 or name.isdigit() for name in classes)
