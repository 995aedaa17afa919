"""What a run came to: routes, calls and tokens per model, and what went wrong, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mai_plugin.core.records import Outcome, Usage, in_order, total, total_details
from mai_plugin.run.runner import Failure, Result

SHARES = {
    ("kept_tokens", "full_tokens"): "reasoning tokens transferred",
    ("accepted_tokens", "drafted_tokens"): "drafted tokens accepted",
}


@dataclass(frozen=True)
class Summary:
    """Numbers of one run.

    Attributes:
        questions: questions that were answered.
        routes: route to how many questions took it.
        usage: role to the token counts of that model's calls.
        wall_s: seconds from the first question to the last answer; loading the models is not in it.
        failed: questions that could not be answered.
        no_answer: questions whose final text states no answer; they are passed to the scorer as is.
        cut_reasoning: E or R texts that the token limit cut.
        reused: what of `usage` was taken from the call store: if any, `wall_s` says nothing about speed.
        details: sums of the counts that only some calls have, see `Completion`.
    """

    questions: int
    routes: dict[str, int]
    usage: dict[str, Usage]
    wall_s: float
    failed: int = 0
    no_answer: int = 0
    cut_reasoning: int = 0
    reused: Usage = field(default_factory=Usage)
    details: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Sequence[Result], wall_s: float) -> Summary:
        """Summarise the results of a run."""
        outcomes = [result for result in results if isinstance(result, Outcome)]
        calls = [call for outcome in outcomes for call in outcome.calls]
        roles = in_order(call.role for call in calls)
        return cls(
            questions=len(outcomes),
            routes=dict(Counter(outcome.route for outcome in outcomes).most_common()),
            usage={role: total(call.usage for call in calls if call.role == role) for role in roles},
            wall_s=wall_s,
            failed=sum(isinstance(result, Failure) for result in results),
            no_answer=sum(not outcome.answered for outcome in outcomes),
            cut_reasoning=sum(call.truncated for call in calls if call.stage in ("E", "R")),
            reused=total(call.usage for call in calls if call.completion.reused),
            details=total_details(call.completion for call in calls),
        )

    @classmethod
    def merge(cls, parts: Sequence[Summary]) -> Summary:
        """The summary of runs that went on side by side, such as those of several ranks."""
        routes: Counter[str] = Counter()
        usage: dict[str, Usage] = {}
        for part in parts:
            routes.update(part.routes)
            for role, spent in part.usage.items():
                usage[role] = usage.get(role, Usage()) + spent
        return cls(
            questions=sum(part.questions for part in parts),
            routes=dict(routes.most_common()),
            usage=usage,
            wall_s=max((part.wall_s for part in parts), default=0.0),
            failed=sum(part.failed for part in parts),
            no_answer=sum(part.no_answer for part in parts),
            cut_reasoning=sum(part.cut_reasoning for part in parts),
            reused=sum((part.reused for part in parts), Usage()),
            details=dict(sum((Counter(part.details) for part in parts), Counter())),
        )

    def as_metrics(self) -> dict[str, float]:
        """Flat numbers for a harness's table: share of each route, calls and output tokens per model."""
        metrics: dict[str, float] = {
            f"share_{route}": count / self.questions for route, count in self.routes.items() if self.questions
        }
        for role, usage in self.usage.items():
            metrics[f"{role}_calls"] = usage.calls
            metrics[f"{role}_output_tokens"] = usage.output_tokens
            metrics[f"{role}_reasoning_tokens"] = usage.reasoning_tokens
        notes = {"no_answer": self.no_answer, "cut_reasoning": self.cut_reasoning, "reused_calls": self.reused.calls}
        return {**metrics, **notes, **self.details}

    @property
    def made_tokens(self) -> int:
        """Output tokens of the calls that were made in this run: those of reused calls are not among them."""
        return sum(usage.output_tokens for usage in self.usage.values()) - self.reused.output_tokens

    def __str__(self) -> str:
        routes = ", ".join(f"{route} {count / max(1, self.questions):.1%}" for route, count in self.routes.items())
        models = "; ".join(
            f"{role}: {usage.calls:,} calls, {usage.output_tokens:,} output tokens"
            for role, usage in self.usage.items()
        )
        trouble: dict[str, Any] = {
            "failed": self.failed, "without an answer": self.no_answer,
            "reasoning texts cut by the limit": self.cut_reasoning,
        }  # fmt: skip
        notes = "".join(f"; {count:,} {what}" for what, count in trouble.items() if count)
        for (key, of_key), what in SHARES.items():
            part, whole = self.details.get(key, 0), self.details.get(of_key)
            notes += f"; {part:,} of {whole:,} {what} ({part / whole:.1%})" if whole else ""
        if self.reused.calls:
            notes += f"; {self.reused.calls:,} calls came from the store, so this is not a timing"
        return f"{self.questions:,} questions in {self.wall_s:.1f} s: {routes}; {models}{notes}"
