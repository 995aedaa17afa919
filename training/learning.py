"""The training loop of one tiny model.

Everything runs on one thread and is seeded, so two runs on the same machine give the same weights to the last bit.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen

from mai_plugin.tiny.charts import EASY_MIX, HEIGHT, TRAINING_MIX, WIDTH, Mix
from training.batches import IGNORED, Batch, BatchMaker

_PATCHES = (HEIGHT // 16) * (WIDTH // 16)
_GRID = (1, HEIGHT // 16, WIDTH // 16)
_REPORT = 100
_WARM_UP = 100
_LOOK_UP_REPORT = 50
_LOOK_UP_FORMED = 0.97
_LOOK_UP_LIMIT = 1500
_LOOK_UP_ROWS = 8

Print = Callable[[str], None]


class LookUpNotFormedError(RuntimeError):
    """The model cannot find a bar by its colour when it should long be able to; another start is needed."""


@dataclass(frozen=True)
class Hints:
    """Weights of the losses that help beside that of the text.

    Attributes:
        image: pulls image tokens towards the words for the colour and the height that they show.
        height: makes the name of a colour, where the model reads it, tell the height of the bar.
    """

    image: float
    height: float


_LOOK_UP_HINTS = Hints(image=1.0, height=0.5)


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train, after the look-up has formed.

    Attributes:
        steps: optimizer steps.
        rate: learning rate after warm-up.
        flat_share: share of the steps before the rate falls, linearly to 2 % of itself.
        hints: weights of the helping losses.
        rows: charts in a batch.
    """

    steps: int
    rate: float
    flat_share: float
    hints: Hints
    rows: int = 8

    def rate_at(self, step: int) -> float:
        """The learning rate of one step."""
        done = step / self.steps
        return self.rate * (1.0 if done < self.flat_share else max(0.02, (1 - done) / (1 - self.flat_share)))


class _Counter:
    """Counts answers that are right in every token, by form and task, since the last report."""

    def __init__(self) -> None:
        self._hits: dict[tuple[str, str], list[bool]] = {}
        self.height_losses: list[float] = []

    def add(self, batch: Batch, right: Tensor) -> None:
        """Counts a batch; ``right[row, i]`` says whether token i + 1 was predicted, (B, L - 1)."""
        for item in batch.scored:
            hit = bool(right[item.row, item.first - 1 : item.last - 1].all())
            self._hits.setdefault((item.form, item.task), []).append(hit)

    def share(self, form: str, task: str) -> float:
        """The share of right answers, 1 where there were none."""
        hits = self._hits.get((form, task), [])
        return sum(hits) / len(hits) if hits else 1.0

    def summary(self) -> str:
        """One phrase for each form: the share over all tasks, then that of each task."""
        phrases = []
        for form in sorted({form for form, _ in self._hits}):
            every = [hit for (other, _), hits in self._hits.items() if other == form for hit in hits]
            tasks = sorted(task for other, task in self._hits if other == form)
            parts = " ".join(f"{task} {self.share(form, task):.2f}" for task in tasks)
            phrases.append(f"{form} {sum(every) / len(every):.2f}: {parts}")
        if self.height_losses:
            phrases.append(f"height loss {np.mean(self.height_losses):.3f}")
        return " | ".join(phrases)


def _embed_patches(self: Any, patches: Tensor) -> Tensor:
    """The patch embedding as a matrix product: the convolution it stands for has one position only."""
    weight = self.proj.weight
    flat = patches.view(-1, weight[0].numel()).to(weight.dtype)
    return functional.linear(flat, weight.view(weight.shape[0], -1), self.proj.bias)


def _attend_within_charts(
    self: Any,
    hidden_states: Tensor,
    cu_seqlens: Tensor | None = None,
    position_embeddings: tuple[Tensor, Tensor] | None = None,
    **_: Any,
) -> Tensor:
    """The vision tower's attention for charts of one size: one call for the batch instead of one for each chart."""
    assert position_embeddings is not None
    length = hidden_states.shape[0]
    query, key, value = self.qkv(hidden_states).reshape(length, 3, self.num_heads, -1).permute(1, 0, 2, 3).unbind(0)
    query, key = qwen.apply_rotary_pos_emb_vision(query, key, *position_embeddings)
    query, key, value = (
        part.reshape(length // _PATCHES, _PATCHES, self.num_heads, -1).transpose(1, 2) for part in (query, key, value)
    )
    seen = functional.scaled_dot_product_attention(query, key, value, scale=self.scaling)
    mixed: Tensor = self.proj(seen.transpose(1, 2).reshape(length, -1))
    return mixed


def _use_fast_vision() -> None:
    """Replaces, in this process, two methods of the vision tower; weights and results stay what they are."""
    setattr(qwen.Qwen3VLVisionPatchEmbed, "forward", _embed_patches)  # noqa: B010 - mypy refuses the assignment
    setattr(qwen.Qwen3VLVisionAttention, "forward", _attend_within_charts)  # noqa: B010


def _forward(model: Qwen3VLForConditionalGeneration, batch: Batch) -> tuple[Tensor, Tensor]:
    """Runs a batch: hidden states (B, L, hidden) and image tokens (B * 12, hidden)."""
    body = model.model
    grid = torch.tensor([_GRID] * len(batch.tokens))
    vision = body.visual(batch.pixels, grid_thw=grid, return_dict=True)
    is_image = batch.tokens == model.config.image_token_id
    embedded = body.get_input_embeddings()(batch.tokens).masked_scatter(is_image[..., None], vision.pooler_output)
    hidden = body.language_model(
        inputs_embeds=embedded,
        position_ids=batch.positions,
        attention_mask=batch.mask,
        visual_pos_masks=is_image,
        deepstack_visual_embeds=list(vision.deepstack_features),
        use_cache=False,
    ).last_hidden_state
    return hidden, vision.pooler_output


def _image_loss(model: Qwen3VLForConditionalGeneration, image_tokens: Tensor, shown: Tensor) -> Tensor:
    """How far image tokens are from the embeddings of the words for their column's colour and height."""
    logits = functional.linear(functional.layer_norm(image_tokens, image_tokens.shape[-1:]), model.lm_head.weight)
    return -functional.log_softmax(logits, -1).gather(1, shown).mean()


def _height_loss(model: Qwen3VLForConditionalGeneration, hidden: Tensor, heights: Tensor) -> Tensor:
    """How badly colour names in what the model reads tell the height of their bar: the look-up in one step."""
    named = heights != IGNORED
    loss: Tensor = functional.cross_entropy(model.lm_head(hidden[named]), heights[named])
    return loss


class Trainer:
    """Trains one model in place; the stages share the optimizer's state."""

    def __init__(self, model: Qwen3VLForConditionalGeneration, seed: int, print_line: Print) -> None:
        """Prepares the training of ``model``; ``seed`` is that of the batches, ``print_line`` takes the progress."""
        _use_fast_vision()
        torch.manual_seed(seed)
        self._model = model
        self._rng = np.random.default_rng(seed)
        self._print_line = print_line
        matrices = [weight for weight in model.parameters() if weight.ndim > 1]
        vectors = [weight for weight in model.parameters() if weight.ndim <= 1]
        self._optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}],
            betas=(0.9, 0.98),
        )
        self._steps = 0
        self._start, self._cpu_start = time.monotonic(), time.process_time()

    def learn_to_look_up(self, maker: BatchMaker, rate: float) -> None:
        """Trains on easy questions until bars are found by their colour, on which all else rests.

        Raises:
            LookUpNotFormedError: it did not happen in good time.
        """
        for _ in range(0, _LOOK_UP_LIMIT, _LOOK_UP_REPORT):
            counter = self._run(maker, EASY_MIX, [rate] * _LOOK_UP_REPORT, _LOOK_UP_HINTS, _LOOK_UP_ROWS)
            if min(counter.share("S", "value"), counter.share("R", "value")) >= _LOOK_UP_FORMED:
                return
        raise LookUpNotFormedError(f"value {counter.share('R', 'value'):.2f} after {_LOOK_UP_LIMIT} steps")

    def learn(self, maker: BatchMaker, schedule: Schedule) -> None:
        """Trains on all questions for a fixed number of steps; the model is then in evaluation mode."""
        rates = [schedule.rate_at(step) for step in range(schedule.steps)]
        for first in range(0, schedule.steps, _REPORT):
            chunk = rates[first : first + _REPORT]
            self._run(maker, TRAINING_MIX, chunk, schedule.hints, schedule.rows)
        self._model.eval()

    def _run(self, maker: BatchMaker, mix: Mix, rates: Sequence[float], hints: Hints, rows: int) -> _Counter:
        """Takes one step for each rate, prints a line, and returns the counts."""
        self._model.train()
        counter, losses = _Counter(), []
        for rate in rates:
            batch = maker.draw(self._rng, rows, mix)
            losses.append(self._step(batch, rate, hints, counter))
        seconds = f"{time.monotonic() - self._start:.0f} s (cpu {time.process_time() - self._cpu_start:.0f} s)"
        self._print_line(f"step {self._steps} {seconds} loss {np.mean(losses):.4f} || {counter.summary()}")
        return counter

    def _step(self, batch: Batch, rate: float, hints: Hints, counter: _Counter) -> float:
        """One optimizer step; returns the loss of the text."""
        self._steps += 1
        for parameters in self._optimizer.param_groups:
            parameters["lr"] = rate * min(1.0, self._steps / _WARM_UP)
        hidden, image_tokens = _forward(self._model, batch)
        counts = batch.weights[:, 1:] > 0
        logits = self._model.lm_head(hidden[:, :-1][counts])
        targets, weights = batch.tokens[:, 1:][counts], batch.weights[:, 1:][counts]
        text_loss = (functional.cross_entropy(logits, targets, reduction="none") * weights).sum() / weights.sum()
        loss = text_loss + hints.image * _image_loss(self._model, image_tokens, batch.shown)
        if hints.height:
            height_loss = _height_loss(self._model, hidden, batch.heights)
            loss = loss + hints.height * height_loss
            counter.height_losses.append(float(height_loss.item()))
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        right = torch.ones_like(counts)
        right[counts] = logits.argmax(-1) == targets
        counter.add(batch, right)
        return float(text_loss.item())
