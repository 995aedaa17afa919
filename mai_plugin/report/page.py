"""A report as one HTML page that needs nothing beside itself: styles inline, pictures as data."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mai_plugin.output.plots import Picture
from mai_plugin.output.table import Table
from mai_plugin.report.measures import toy, way
from mai_plugin.report.plots import pictures
from mai_plugin.report.related_runs import Results

TEMPLATE = "page.html.jinja"
LONG_TABLES = ("latency", "ttft", "calls")
"""Tables that come after the pictures."""


def page(results: Results, tables: Sequence[Table]) -> str:
    """The page: tables, pictures, and what the runs were made with.  All text is escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    runs = results.runs
    return environment.get_template(TEMPLATE).render(
        toys=list(dict.fromkeys(what for _, run in runs if (what := toy(run)))),
        tables=tables,
        long=LONG_TABLES,
        pictures=[(picture, _data_uri(picture)) for picture in pictures(results)],
        runs=[
            {
                "label": label,
                "id": run.id,
                "form": str(way(run)),
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
