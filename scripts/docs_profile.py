"""Put profiles into docs/profile.md: `mai profile --quick`, and the last `make profile` and `make profile-gpu`.

Without the latter the GPU section is left alone.  With --keep no run is made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from docs_report import shell
from docs_tables import ROOT, put

from mai_plugin.output.render import markdown_table
from mai_plugin.study.profile.result import Profile
from mai_plugin.study.profile.tables import describe, tables

PAGE = ROOT / "docs" / "profile.md"
COMMAND = "mai profile --quick"
SHORT_TOKENS = 4


def profile_tables(path: Path) -> str:
    """Every table of a JSON file of `mai profile`, in Markdown, and where it was measured."""
    profile = Profile.from_json(json.loads(path.read_text(encoding="utf-8")))
    parts = [f"Measured: {describe(profile)}"]
    for table in tables(profile, SHORT_TOKENS, compare=True):
        parts.append(f"**{table.title}**\n\n{markdown_table(table)}")
    if profile.skipped:
        parts.append("\n".join(["Skipped:", "", *(f"- {line}" for line in profile.skipped)]))
    return "\n\n".join(parts)


def main() -> None:
    cut, gpu = ROOT / "out" / "profile" / "cut.json", ROOT / "out" / "profile-gpu" / "profile.json"
    if not cut.is_file():
        raise SystemExit("docs_profile: out/profile/cut.json is missing: run `make profile` first")
    if "--keep" not in sys.argv:
        put(PAGE, "tiny", f"```\n$ {COMMAND}\n\n{shell(COMMAND, ROOT)}\n```")
    put(PAGE, "cut", profile_tables(cut))
    if gpu.is_file():
        put(PAGE, "gpu", profile_tables(gpu))


if __name__ == "__main__":
    main()
