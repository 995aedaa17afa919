"""Where results go beside the terminal: what is written to which file, checked before work starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from mai_plugin.output.render import to_csv, to_markdown
from mai_plugin.output.table import Table

if TYPE_CHECKING:
    from mai_plugin.output.plots import Picture


@dataclass(frozen=True)
class Outputs:
    """Files and folders by the option that names them; None for not at all.

    Attributes:
        json, markdown: files.
        csv: a folder for a file per table, or one X.csv for the first.
        html, plots: folders.
    """

    json: Path | None = None
    csv: Path | None = None
    markdown: Path | None = None
    html: Path | None = None
    plots: Path | None = None

    def prepare(self) -> None:
        """Make the folders, so that a path that cannot be written is known before anything is measured.

        Raises:
            ValueError: one cannot be made, or a folder is given for a file.
            ModuleNotFoundError: pictures are wanted, and matplotlib is missing.
        """
        if self.plots or self.html:
            import matplotlib  # noqa: F401
        for option in fields(self):
            path: Path | None = getattr(self, option.name)
            if path is None:
                continue
            is_file = option.name in ("json", "markdown") or (option.name == "csv" and path.suffix == ".csv")
            try:
                (path.parent if is_file else path).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ValueError(f"--{option.name} {path}: {error}") from error
            if is_file and path.is_dir():
                raise ValueError(f"--{option.name} {path}: is a folder; give a file")

    def write(
        self,
        data: Callable[[], object],
        tables: Callable[[], Sequence[Table]] = list,
        pictures: Callable[[], Iterable[Picture]] = list,
        page: Callable[[], str] = str,
    ) -> list[Path]:
        """Write what is asked for; only that is made.

        Args:
            data: what goes into the JSON file.
            tables: for CSV and Markdown.
            pictures: for the folder of pictures.
            page: a page in HTML.

        Returns:
            The files; of CSV the folder.

        Raises:
            ValueError: one cannot be written.
        """
        self.prepare()
        written: list[Path] = []

        def text(path: Path, content: str) -> None:
            path.write_text(content, encoding="utf-8", errors="backslashreplace")
            written.append(path)

        try:
            if self.json:
                text(self.json, json.dumps(data(), indent=1) + "\n")
            if self.markdown:
                text(self.markdown, to_markdown(tables()))
            if self.csv:
                to_csv(tables(), self.csv)
                written.append(self.csv)
            if self.plots:
                written += [path for picture in pictures() for path in picture.save(self.plots)]
            if self.html:
                text(self.html / "index.html", page())
        except OSError as error:
            raise ValueError(f"the results cannot be written: {error}") from error
        return written
