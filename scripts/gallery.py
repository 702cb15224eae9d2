"""Write docs/pictures: the pages of two runs, in light and dark, as headless Chromium draws them, and a contact sheet.

python scripts/gallery.py [RUNS]

RUNS is a folder for the runs. It defaults to a temporary folder. Runs in an existing folder use its cache.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

REPOSITORY = Path(__file__).parents[1]
PICTURES = REPOSITORY / "docs" / "pictures"
COLORS = 128  # enough for these pages. Quantizing by coverage keeps rare colors, such as those of short bars
THEMES = {"": 1, "-dark": 0}  # end of the name -> Chromium's number of the preferred color scheme
# Name of the picture -> (page below the folder of the runs, width and height of the window in pixels).
PAGES = {
    "input-report": ("image/artifacts/InputReport/report/*/report.html", (1000, 1050)),
    "input-report-whole": ("image/artifacts/InputReport/report/*/report.html", (1000, 3110)),
    "model-report-classes": ("image/artifacts/Evaluator/evaluation/*/model_report.html", (1000, 2900)),
    "model-report-table": ("tabular/artifacts/Evaluator/evaluation/*/model_report.html", (1000, 2900)),
    "columns": ("columns.html", (1000, 1100)),
}


def main(runs: Path) -> None:
    for template in ("image", "tabular"):
        _infeed(runs, "run", template, "--root", template)
    dataset = _newest(runs, "tabular/artifacts/CsvExampleGen/examples/*")
    _infeed(runs, "statistics", dataset.relative_to(runs), "--html", "columns.html")
    PICTURES.mkdir(exist_ok=True)
    pictures = _newest(runs, "image/artifacts/ImageExampleGen/examples/*")
    _infeed(runs, "inspect", pictures.relative_to(runs), "--sheet", PICTURES / "contact-sheet.png")
    for name, (page, size) in PAGES.items():
        for end, scheme in THEMES.items():
            _draw(_newest(runs, page), size, PICTURES / f"{name}{end}.png", scheme)


def _draw(page: Path, size: tuple[int, int], picture: Path, scheme: int) -> None:
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    theme, window = f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={size[0]},{size[1]}"
    command = ["chromium", *options, theme, window, f"--screenshot={picture}", page.resolve().as_uri()]
    subprocess.run(command, check=True, capture_output=True)
    with Image.open(picture) as image:
        image.convert("RGB").quantize(COLORS, Image.Quantize.MAXCOVERAGE).save(picture, optimize=True)
    print(f"{picture.relative_to(REPOSITORY)}: {picture.stat().st_size:,} bytes")


def _infeed(folder: Path, *words: object) -> None:
    subprocess.run([Path(sys.executable).with_name("infeed"), *map(str, words)], cwd=folder, check=True)


def _newest(runs: Path, pattern: str) -> Path:
    return max(runs.glob(pattern), key=lambda path: path.stat().st_mtime)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
