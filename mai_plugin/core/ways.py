"""How a question was asked, as a value: one spelling, one parser, and the command that asks that way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from mai_plugin.core.records import Style

MAI = "mutual_verification"
_PREFIXES = {"transfer": "transfer", "sparse_transfer": "sparse-transfer", "speculative": "speculative"}
_LMMS_EVAL_MODELS = {"single": "mai_single", "transfer": "mai_transfer"}
_SPELLING = re.compile(
    r"(?:(?P<mai>MAI)(?P<mai_sparse>-sparse)?|(?P<prefix>speculative|sparse(?:-transfer)?|transfer))?"
    r"(?:(?:^|-)(?P<style>[SER])(?P<two_stage>-S2)?)?(?:-L(?P<layer>\d+(?:\.\d+)?))?"
)


@dataclass(frozen=True, slots=True)
class Way:
    """How a question was asked.

    `S`, `E`, `R`, `E-S2`, `R-S2` (one model); `speculative-R`, `speculative-R-S2`; `transfer-R`, `transfer-E`;
    `sparse-transfer-R-L16` (`sparse-R-L16` is read too); `MAI`, `MAI-sparse`, `MAI-R-S2` (table 15) and `MAI-S` (short
    answers alone are compared); a strategy of one's own by its name.

    Attributes:
        strategy: its name.
        style: how the model was asked, or what was transferred.  For MAI what is compared with the large model's short
            answer in the second step: `R` with or without `two_stage`, `S` for no second step.
        two_stage: a short answer was asked for after one's own reasoning (S2, Eqn. 7).
        sparse: MAI with a sparse transfer at its end.
        layer: whose attention decides in a sparse transfer; None for the default.
    """

    strategy: str = "single"
    style: Style = "R"
    two_stage: bool = False
    sparse: bool = False
    layer: int | float | None = None

    def __post_init__(self) -> None:
        if self.two_stage and self.style == "S":
            raise ValueError("argument two_stage=true needs prompt=E or prompt=R: S has no reasoning to read again")

    def __str__(self) -> str:
        layer = "" if self.layer is None else f"-L{self.layer}"
        asked = self.style + ("-S2" if self.two_stage else "")
        if self.strategy == MAI:
            return "MAI" + ("-sparse" if self.sparse else "") + ("" if asked == "R" else f"-{asked}") + layer
        if self.strategy == "single":
            return asked
        prefix = _PREFIXES.get(self.strategy)
        return f"{prefix}-{asked}{layer}" if prefix else self.strategy

    @classmethod
    def parse(cls, text: str) -> Way:
        """The inverse of `str`; a word that is none of the built-in spellings is a strategy of one's own."""
        found = _SPELLING.fullmatch(text)
        if found is None or not text:
            return cls(text)
        number = found["layer"]
        layer = None if number is None else float(number) if "." in number else int(number)
        prefix = found["prefix"]
        if prefix:
            strategy = "sparse_transfer" if prefix.startswith("sparse") else prefix
        else:
            strategy = MAI if found["mai"] else "single"
        style = cast(Style, found["style"] or "R")
        return cls(strategy, style, bool(found["two_stage"]), bool(found["mai_sparse"]), layer)

    @classmethod
    def of(cls, strategy: str, arguments: Mapping[str, Any]) -> Way:
        """The way of a strategy with these arguments: those of `Settings`, or as the store keeps them with a run."""
        if strategy == MAI:
            verify = str(arguments.get("verify") or "R")
            style: Literal["S", "R"] = "S" if verify == "none" else "R"
            sparse = bool(arguments.get("sparse")) or arguments.get("transfer") == "sparse"
            return cls(MAI, style, verify == "R-S2", sparse)
        if cls(strategy).is_named:
            return cls(strategy)
        default = "S" if strategy == "single" else "R"
        return cls(strategy, cast(Style, arguments.get("prompt") or default), bool(arguments.get("two_stage")))

    @property
    def is_named(self) -> bool:
        """Whether it is spelled by its strategy's name alone."""
        return self.strategy not in ("single", MAI, *_PREFIXES)

    @property
    def reasoning(self) -> Way:
        """The reasoning that a two-stage answer or a transfer reads, as a way of its own."""
        return Way("single", self.style)

    @property
    def arguments(self) -> dict[str, str]:
        """What `--model_args` says beside the models, defaults left out where the model name implies them."""
        if self.strategy == MAI:
            verify = "none" if self.style == "S" else "R-S2" if self.two_stage else ""
            found = {"verify": verify, "transfer": "sparse" if self.sparse else ""}
        elif self.strategy in ("single", *_PREFIXES):
            found = {"prompt": self.style, "two_stage": "true" if self.two_stage else ""}
            if self.strategy not in _LMMS_EVAL_MODELS:
                found = {"strategy": self.strategy, **found}
        else:
            found = {"strategy": self.strategy}
        layer = "" if self.layer is None else str(self.layer)
        return {key: value for key, value in {**found, "layer": layer}.items() if value}

    @property
    def lmms_eval_model(self) -> str:
        """The model of lmms-eval that asks this way."""
        return _LMMS_EVAL_MODELS.get(self.strategy, "mai_cascade")

    def command(self, models: Mapping[str, str]) -> str:
        """The lmms-eval command that asks this way.

        Args:
            models: argument (`small` and `large`, or `model`) to model.
        """
        args = ",".join(f"{key}={value}" for key, value in {**models, **self.arguments}.items())
        return f"lmms-eval --model {self.lmms_eval_model} --model_args {args}"
