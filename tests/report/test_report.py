"""`mai report`: its outputs, on the command line."""

from __future__ import annotations

import csv
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.report_stores import TINY, Asked, add_run, demo_store, write_results
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text
from typer.testing import CliRunner, Result

from mai_plugin.cli import app
from mai_plugin.report.command import make_report
from mai_plugin.report.page import page
from mai_plugin.report.plots import pictures
from mai_plugin.run.store import Store

ROOT = Path(__file__).parent.parent.parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def mai_report(*args: str | Path, code: int = 0) -> Result:
    """The command in this process, on a terminal of the usual width."""
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["report", *map(str, args)])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    demo_store(folder)
    return folder


@pytest.fixture(scope="module")
def written(folder: Path) -> tuple[Path, str]:
    """A report with every output, and what it printed."""
    out = folder / "written"
    done = mai_report(
        "--store", folder, "--baseline", "tiny-large-S", "--json", out / "r.json", "--csv", out / "tables",
        "--markdown", out / "r.md", "--html", out / "page", "--plots", out / "plots",
    )  # fmt: skip
    return out, done.stdout


def test_the_terminal_shows_every_table_whole(written: tuple[Path, str]) -> None:
    out, printed = written
    for table in json.loads((out / "r.json").read_text())["tables"]:
        assert table["title"] in printed
    assert "…" not in printed
    assert re.search(
        r"MAI-tiny +chartqa +40 +24 +60.0% +8 +20.0% +8 +20.0% +90.0 +50.0 +70.0 +70.0 +90.0 +90.0", printed
    )


def test_what_was_written_is_named(written: tuple[Path, str]) -> None:
    out, printed = written
    for name in ("r.json", "r.md", "tables", "page/index.html", "plots/routes.svg"):
        assert str(out / name) in printed


def test_json_has_the_documented_keys(written: tuple[Path, str]) -> None:
    found = json.loads((written[0] / "r.json").read_text())
    run = next(run for run in found["runs"] if run["name"] == "MAI-tiny")
    assert set(found) == {"runs", "comparisons", "tables"}
    documented = (ROOT / "docs" / "reports.md").read_text()
    for key in {*run, *run["tasks"]["chartqa"], *found["comparisons"][0]}:
        assert f"`{key}`" in documented
    task = run["tasks"]["chartqa"]
    assert (task["score"], task["output_tokens"], task["routes"]["transfer"]) == (90, {"small": 560, "large": 96}, 8)
    assert task["ci95"][0] < 90 < task["ci95"][1]
    assert run["wall_s"] == 18


def test_csv_has_plain_numbers(written: tuple[Path, str], folder: Path) -> None:
    lines = list(csv.DictReader((written[0] / "tables" / "overview.csv").open()))
    (line,) = (line for line in lines if line["run"] == "MAI-tiny" and line["benchmark"] == "chartqa")
    assert float(line["tokens per right answer"]) == 656 / 36
    mai_report("--store", folder, "--csv", folder / "one.csv")
    assert list(csv.DictReader((folder / "one.csv").open())) == lines


def test_markdown_tables_are_regular(written: tuple[Path, str]) -> None:
    text = (written[0] / "r.md").read_text()
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_pictures_are_written_as_png_and_svg(written: tuple[Path, str]) -> None:
    names = {path.stem for path in (written[0] / "plots").iterdir()}
    assert names == {"score_tokens", "score_time", "routes", "stage_tokens", "latency", "latency_MAI-tiny"}
    for name in names:
        assert imread(written[0] / "plots" / f"{name}.png").std() > 0.05
        assert "</svg>" in (written[0] / "plots" / f"{name}.svg").read_text()


def drawn_texts(figure: Figure) -> list[Text]:
    """All texts that are drawn; an axis has labels beyond its ends too, which are not."""
    found = [figure._suptitle, *figure.legends[0].get_texts()]  # type: ignore[attr-defined]
    for axes in figure.axes:
        found += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [text for text in found if text.get_text() and text.get_visible()]


def test_nothing_in_a_picture_overlaps_or_is_cut(folder: Path) -> None:
    """Texts of each figure, as they are drawn: inside the figure, and apart from each other."""
    for picture in pictures(make_report(folder, [], [], None).results):
        picture.figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in drawn_texts(picture.figure)]
        frame = picture.figure.bbox.padded(1)
        assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 for box in boxes), picture.name
        clashes = [(a, b) for n, a in enumerate(boxes) for b in boxes[:n] if a.padded(-1).overlaps(b.padded(-1))]
        assert not clashes, picture.name


def test_axes_have_units_and_toys_are_called_toys(folder: Path) -> None:
    for picture in pictures(make_report(folder, [], [], None).results):
        assert "TOY" in picture.caption
        assert all(re.search(r", (s|%)|per question", axes.get_xlabel()) for axes in picture.figure.axes)


def test_pareto_front_is_marked(folder: Path) -> None:
    """On realworldqa: large-S, large-E, MAI and transfer; large-R has MAI's score at a greater cost."""
    picture = next(p for p in pictures(make_report(folder, [], [], None).results) if p.name == "score_tokens")
    front = next(line for line in picture.figure.axes[1].lines if line.get_linestyle() == "--")
    assert [tuple(point) for point in front.get_xydata().tolist()] == [(2, 60), (10, 70), (16.4, 80), (32, 90)]


@pytest.mark.parametrize(
    ("how", "axis"), [({}, "wall time per question, s"), ({"reused": True}, "mean latency of a question, s")]
)
def test_time_is_wall_time_only_where_it_means_something(tmp_path: Path, how: dict, axis: str) -> None:
    """One benchmark alone, every call made for the run."""
    store = Store(tmp_path / "calls.sqlite")
    for name, wall_s in (("a", 20.0), ("b", 10.0)):
        questions = {"chartqa": [Asked()] * 4}
        add_run(store, name, questions, results=tmp_path / "out", wall_s=wall_s, **(how if name == "b" else {}))
        write_results(tmp_path / "out", name, questions)
    picture = next(p for p in pictures(make_report(tmp_path, [], [], None).results) if p.name == "score_time")
    (axes,) = picture.figure.axes
    assert axes.get_xlabel() == axis
    drawn = {line.get_xdata()[0] for line in axes.lines if line.get_marker() in ("o", "s")}
    assert drawn == ({5.0, 2.5} if not how else {0.1})


class Page(html.parser.HTMLParser):
    """Collects addresses and headings."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tables = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        self.tables += tag == "table"


def test_the_page_needs_nothing_beside_itself(written: tuple[Path, str]) -> None:
    text = (written[0] / "page" / "index.html").read_text()
    found = Page()
    found.feed(text)
    assert all(address.startswith(("#", "data:image/svg+xml;base64,")) for address in found.addresses)
    assert not re.search(r"@import|url\(|<script", text)
    assert found.tables == len(json.loads((written[0] / "r.json").read_text())["tables"])


def test_text_in_the_page_is_escaped(tmp_path: Path) -> None:
    add_run(Store(tmp_path / "calls.sqlite"), "<script>alert(1)</script>", {"chartqa": [Asked()]})
    report = make_report(tmp_path, [], [], None)
    text = page(report.results, report.tables)
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text


@pytest.fixture(scope="module")
def browser() -> str:
    """Where CI is set, it has to be there: the test fails instead of being skipped."""
    missing = "no chromium on this machine: apt-get install -y chromium"
    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip(missing)
    assert CHROMIUM, missing
    return CHROMIUM


def test_the_page_in_a_browser(written: tuple[Path, str], browser: str, tmp_path: Path) -> None:
    """Chromium lays it out: its tables are there with their cells, and every picture is decoded."""
    flags = (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1300,9000",
        f"--user-data-dir={tmp_path / 'profile'}",
    )  # fmt: skip
    address = (written[0] / "page" / "index.html").as_uri()

    def browse(*args: str) -> str:
        done = subprocess.run([browser, *flags, *args, address], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    found = Page()
    dom = browse("--dump-dom")
    found.feed(dom)
    assert found.tables == len(json.loads((written[0] / "r.json").read_text())["tables"])
    assert re.search(r"<td>MAI-tiny</td>\s*<td>chartqa</td>\s*<td class=\"number\">40</td>", dom)
    browse(f"--screenshot={tmp_path / 'page.png'}")
    # Hatched orange, and blue of the bars: the pictures themselves are drawn, their policy notwithstanding.
    pixels = imread(tmp_path / "page.png")[..., :3].reshape(-1, 3)
    for colour in ((0xE6, 0x9F, 0x00), (0x56, 0xB4, 0xE9)):
        assert (abs(pixels - [part / 255 for part in colour]).max(axis=1) < 0.01).sum() > 1000


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--store", "{0}/none"], "mai: no call store at {0}/none; give the file, or the folder"),
        (
            ["--store", "{0}", "MAI-tinny"],
            "mai: no run is called 'MAI-tinny' in {0}/calls.sqlite; it holds runs of: tiny-",
        ),
        (["--store", "{0}", "--results", "{0}/none"], "mai: --results {0}/none: no such folder"),
        (["--store", "{0}", "--json", "{0}/calls.sqlite/r.json"], "mai: --json {0}/calls.sqlite/r.json: "),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_1(folder: Path, args: list[str], message: str) -> None:
    done = mai_report(*(arg.format(folder) for arg in args), code=1)
    assert done.stderr.startswith(message.format(folder))
    assert done.stderr.count("\n") == 1


def test_a_mismatch_is_one_line_and_exit_1(tmp_path: Path) -> None:
    add_run(Store(tmp_path / "calls.sqlite"), "tiny", {"chartqa": [Asked()]}, results=tmp_path / "out")
    write_results(tmp_path / "out", "tiny", {"chartqa": [Asked(returned="8")]})
    done = mai_report("--store", tmp_path, code=1)
    assert "document 0 of chartqa: the harness has '8', the run returned '7'" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("package", "args"), [("numpy", []), ("scipy", ["--baseline", "tiny-large-R"])])
def test_a_missing_extra_is_named(tmp_path: Path, package: str, args: list[str]) -> None:
    """In an environment without it.  scipy is imported for comparisons and bootstraps only."""
    demo_store(tmp_path).close()
    code = f"import sys; sys.modules[{package!r}] = None; from mai_plugin.cli import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", code, "report", "--store", str(tmp_path), *args],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "pip install 'mai-plugin[report]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_brackets_and_bars_in_names_are_kept(tmp_path: Path) -> None:
    name = "a|b [bold]c[/bold]"
    store = Store(tmp_path / "calls.sqlite")
    add_run(store, name, {"chartqa": [Asked("agree-simple")]}, strategy="mutual_verification", models=TINY)
    done = mai_report("--store", tmp_path, "--markdown", tmp_path / "r.md", "--plots", tmp_path / "plots")
    assert name in done.stdout
    assert "a\\|b [bold]c" in (tmp_path / "r.md").read_text()
    assert len(list((tmp_path / "plots").glob("latency_*.svg"))) == 1
