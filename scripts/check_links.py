"""Check that every relative link of the Markdown pages leads to a file, and to a heading there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```", re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", _CODE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path) -> list[str]:
    found = []
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(f"{page.relative_to(ROOT)}: {link}")
    return found


if __name__ == "__main__":
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.md")]
    wrong = [line for page in pages for line in broken(page)]
    print("\n".join(wrong) or f"check_links: {len(pages)} pages, no broken link")
    sys.exit(bool(wrong))
