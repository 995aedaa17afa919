"""A report as one HTML page that needs nothing beside itself: styles inline, pictures as data."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mai_plugin.analysis.measures import form, toy
from mai_plugin.analysis.plots import Picture, pictures

if TYPE_CHECKING:
    from mai_plugin.analysis.report import Report

TEMPLATE = "page.html.jinja"
LONG_TABLES = ("latency", "ttft", "calls")
"""Tables that stand behind the pictures."""


def page(report: Report) -> str:
    """The page: tables, pictures, and what the runs were made with.  All text is escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    runs = report.results.runs
    return environment.get_template(TEMPLATE).render(
        toys=list(dict.fromkeys(what for _, run in runs if (what := toy(run)))),
        tables=report.tables,
        long=LONG_TABLES,
        pictures=[(picture, _data_uri(picture)) for picture in pictures(report.results)],
        runs=[
            {
                "label": label,
                "id": run.id,
                "form": form(run),
                "engine": run.engine,
                "started_at": run.started_at,
                "finished": run.finished,
                "settings": json.dumps(run.settings, indent=1, ensure_ascii=False),
                "environment": json.dumps(run.environment, indent=1, ensure_ascii=False),
            }
            for label, run in runs
        ],
    )


def _data_uri(picture: Picture) -> str:
    # As an image of its own, so that ids in one SVG cannot meet those in another.
    return "data:image/svg+xml;base64," + base64.b64encode(picture.svg()).decode()
