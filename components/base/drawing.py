"""Plots and templates of our HTML pages: inline SVG that follows the font and both color themes of the page."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infeed.components.base.units import counted, number, percent, plain, seconds, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# matplotlib requires fixed colors, but the page has a light and a dark theme. A CSS variable replaces each color.
INK, MUTED, WAITED, COMPUTED, LINE, OUTSIDE = "#010101", "#020202", "#030303", "#040404", "#050505", "#060606"
_VARIABLES = {
    **{INK: "--ink", MUTED: "--muted", LINE: "--line"},
    **{WAITED: "--waited", COMPUTED: "--computed", OUTSIDE: "--outside"},
}
# Two figures on a page would repeat these ids. Ids that the drawing references have no underscore.
_GROUP_ID = re.compile(r' id="[\w.]+_\d+"')
_NO_METADATA: dict[str, str | None] = {"Date": None, "Creator": None, "Format": None, "Type": None}

# At this size, text stays legible if a phone shows the figure at four fifths of its size.
WIDTH_INCHES, HEIGHT_INCHES = 6.4, 3.6


def new_axes(height: float = HEIGHT_INCHES) -> tuple[Figure, Axes]:
    """Return a figure of the width of a page's column, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(colors=MUTED, length=0, labelsize=12)
    axes.xaxis.label.set(color=MUTED, size=12)
    axes.yaxis.label.set(color=MUTED, size=12)
    axes.set_axisbelow(True)
    axes.locator_params(axis="y", nbins=6)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    return figure, axes


def to_svg(figure: Figure, name: str = "infeed") -> str:
    """Convert a figure to an <svg> element. Text stays text, so it is searchable and uses the font of the page.

    `name`, unique on the page, seeds the ids of the figure.
    """
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):  # the same ids in every run
        figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA)
    text = buffer.getvalue()
    text = _GROUP_ID.sub("", text[text.index("<svg") :])
    for color, variable in _VARIABLES.items():
        text = text.replace(color, f"var({variable})")
    return text


def notebook_frame(page: str) -> str:
    """Return an HTML page as a notebook element that isolates the styles of both."""
    style = "width: 100%; height: 48rem; border: 0"
    return f'<iframe srcdoc="{html.escape(page)}" style="{style}" title="report"></iframe>'


def render(package: str, template: str, **values: Any) -> str:
    """Render a template of a package, which may extend `page.html.j2`, the frame of all pages."""
    import jinja2

    loaders = [jinja2.PackageLoader(package, package_path=""), jinja2.FileSystemLoader(Path(__file__).parent)]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {one.__name__: one for one in (counted, number, percent, seconds, size)}
    return environment.get_template(template).render(**values)


def _shown(value: Any) -> Any:
    """Escape control characters in a template value. Markup stays markup."""
    return type(value)(plain(value)) if isinstance(value, str) else value
