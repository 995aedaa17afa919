"""Which sizes a profile has: the paper's, the quick ones, or those that were asked for."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True)
class Grid:
    """What to measure; the defaults are the points of the paper's tables 1 to 4.

    Attributes:
        image_sides: pixels, for preprocessing and the vision encoder.
        ttft_sides, query_tokens: for the time to first token, each with each.
        decode_sides, decode_query_tokens, output_tokens: for decoding, each with each.
        batch_sizes: TTFT and decoding at the first side and query of decoding also at these; all else is at batch 1.
        warmup, repeats: runs that do not count, and runs that do.
        max_seconds: for one size: it is skipped where one run is predicted to take longer, and no further repeat is
            started after that time.
        time_limit: seconds for everything, in equal parts for the models; None for no limit.
    """

    image_sides: tuple[int, ...] = (256, 512, 1024, 2048, 4096)
    ttft_sides: tuple[int, ...] = (256, 512, 1024)
    query_tokens: tuple[int, ...] = (64, 256, 512)
    decode_sides: tuple[int, ...] = (256, 512)
    decode_query_tokens: tuple[int, ...] = (64, 256)
    output_tokens: tuple[int, ...] = (8, 128, 256, 512)
    batch_sizes: tuple[int, ...] = (1, 4, 16)
    warmup: int = 2
    repeats: int = 5
    max_seconds: float = 30.0
    time_limit: float | None = None

    @classmethod
    def of(cls, quick: bool, **given: Any) -> Grid:
        """The default or the quick grid, with what was given in the place of its own.

        Raises:
            ValueError: a size is below 1.
        """
        grid = replace(QUICK if quick else cls(), **{key: value for key, value in given.items() if value is not None})
        for each in fields(grid):
            value = getattr(grid, each.name)
            option = f"--{each.name.replace('_', '-')}"
            if isinstance(value, tuple):
                if not value or min(value) < 1:
                    raise ValueError(
                        f"{option}: it must be whole numbers, at least 1, such as {cls._example(each.name)}"
                    )
                sizes: dict[str, Any] = {each.name: tuple(sorted(set(value)))}
                grid = replace(grid, **sizes)
            elif value is not None and not value >= (0 if each.name == "warmup" else 1e-9):  # nor NaN
                raise ValueError(f"{option} {value}: it must be more than 0")
        return grid

    @classmethod
    def _example(cls, name: str) -> str:
        return ",".join(map(str, getattr(cls, name)))

    def points(self) -> int:
        """How many steps the progress bar has for one model."""
        decode = len(self.decode_sides) * len(self.decode_query_tokens)
        return (
            2 * len(self.image_sides) + len(self.ttft_sides) * len(self.query_tokens) + decode
            + 2 * sum(size > 1 for size in self.batch_sizes)
        )  # fmt: skip


QUICK = Grid(
    image_sides=(256, 512, 1024), ttft_sides=(256, 512), query_tokens=(64, 256), decode_sides=(256,),
    decode_query_tokens=(64,), output_tokens=(4, 8, 32, 128), batch_sizes=(1, 4), warmup=1, repeats=3, max_seconds=4.0,
    time_limit=95.0,
)  # fmt: skip
"""`--quick`: fewer and smaller sizes, under two minutes."""
