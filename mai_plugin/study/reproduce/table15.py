"""MAI with R(S2) in its second step (table 15), from the calls and the scores of other runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mai_plugin.core.records import Outcome
from mai_plugin.core.strategies import TRANSFER
from mai_plugin.core.ways import Way
from mai_plugin.harness.lmms_eval.results import Marks, NotScored, marks
from mai_plugin.harness.scores import ScoredRun, read_records
from mai_plugin.replay.latency import paper_latency
from mai_plugin.replay.policies import policies
from mai_plugin.replay.replay import Cost, Replay
from mai_plugin.replay.stored_calls import Models, gather

MAI_TWO_STAGE = Way("mutual_verification", "R", True)


@dataclass(frozen=True)
class Replayed:
    """What the policy comes to on a task.

    Attributes:
        n: questions.
        routes: route to how many questions take it.
        marks: its score.
    """

    n: int
    routes: Mapping[str, int]
    marks: Marks


def replay_second_step(
    store: Path, task: str, transfer: ScoredRun, large: ScoredRun, small: ScoredRun, two_stage: ScoredRun
) -> Replayed:
    """Replay the policy, and score it with the harness's own records of the answers that it takes.

    Args:
        store: the call store's file.
        task: of all the runs.
        transfer: the pair's, of R.
        large, small: the models alone, in S.
        two_stage: the small model's R-S2.

    Raises:
        NotScored: calls are missing, or an answer is none that these runs returned.
    """
    runs = [scored.run for scored in (large, small, two_stage, transfer)]
    models = transfer.run.settings["models"]
    pair = Models(*({role: str(models[role][key]) for role in ("small", "large")} for key in ("identity", "name")))
    evidence = gather(store, runs, pair)
    # Its time is not asked for: any latency does.
    replay = Replay(evidence, [one for one in evidence.questions if one.task == task], Cost(paper_latency(pair.names)))
    policy = next(policy for policy in policies(replay.agents) if policy.way == MAI_TWO_STAGE)
    found = replay.run(policy)
    if found.missing:
        lacking = ", ".join(f"{count:,} of {role} {step}" for (role, step), count in found.missing.items())
        raise NotScored(f"calls are missing: {lacking}")
    outcomes = replay.outcomes(policy)
    asked = sum(sample.task == task for sample in transfer.run.samples.values())
    if len(outcomes) != asked:
        raise NotScored(f"{len(outcomes):,} of {asked:,} questions could be put together")
    return Replayed(len(outcomes), found.routes, _marks(task, outcomes, transfer, large))


def _marks(task: str, outcomes: Mapping[str, Outcome], transfer: ScoredRun, large: ScoredRun) -> Marks:
    """Each answer is the large model's, after reading the reasoning or in S: these two runs' records make it up."""
    records = {
        id(scored): {str(record["doc_id"]): record for record in read_records(scored.scores[task].file)}
        for scored in (transfer, large)
    }
    taken = []
    for question_id, outcome in outcomes.items():
        scored = transfer if outcome.route == TRANSFER else large
        sample = scored.run.samples[question_id]
        if sample.returned != outcome.answer:
            raise NotScored(f"{question_id}: nobody scored its answer {outcome.answer!r}")
        taken.append(records[id(scored)][sample.doc_id])
    return marks(task, taken, None)
