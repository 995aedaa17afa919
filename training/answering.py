"""Lets a tiny checkpoint answer questions about charts, many at a time, through transformers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForImageTextToText

from mai_plugin.tiny.charts import HEIGHT, WIDTH, Pixels, patches

_AT_ONCE = 125
LONG_LIMIT = 72
"""Most tokens of a rationale or an explanation."""


@dataclass(frozen=True)
class Reply:
    """A text and the number of tokens that were generated for it, the end token included."""

    text: str
    tokens: int


class Answerer:
    """A checkpoint, loaded in float32, that answers greedily."""

    def __init__(self, folder: Path) -> None:
        """Loads the checkpoint in ``folder``."""
        self._model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._padding, self._end = self._tokenizer.encode("<|endoftext|><|im_end|>").ids

    def answer(
        self, chats: Sequence[str], pictures: Sequence[Pixels], limit: int, temperature: float = 0.0
    ) -> list[Reply]:
        """Answers chats of one chart each.

        Args:
            chats: texts up to where the model answers, as ``wording.one_turn`` writes them.
            pictures: the chart of each, shape (96, 128, 3).
            limit: most tokens to generate.
            temperature: 0 for greedy answers; otherwise they are drawn with torch's own random numbers.

        Returns:
            One reply for each chat.
        """
        replies: list[Reply] = []
        for start in range(0, len(chats), _AT_ONCE):
            chunk = slice(start, start + _AT_ONCE)
            replies += self._answer_chunk(chats[chunk], pictures[chunk], limit, temperature)
        return replies

    def _answer_chunk(
        self, chats: Sequence[str], pictures: Sequence[Pixels], limit: int, temperature: float
    ) -> list[Reply]:
        encoded = [self._tokenizer.encode(chat).ids for chat in chats]
        length = max(map(len, encoded))
        tokens = torch.tensor([[self._padding] * (length - len(ids)) + ids for ids in encoded])
        attention = torch.tensor([[0] * (length - len(ids)) + [1] * len(ids) for ids in encoded])
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
        with torch.inference_mode():
            generated = self._model.generate(
                input_ids=tokens,
                attention_mask=attention,
                pixel_values=torch.from_numpy(patches(np.stack(pictures))),
                image_grid_thw=torch.tensor([[1, HEIGHT // 16, WIDTH // 16]] * len(chats)),
                mm_token_type_ids=(tokens == self._model.config.image_token_id).long(),
                max_new_tokens=limit,
                **sampling,
            )[:, length:].tolist()
        replies = []
        for ids in generated:
            written = ids.index(self._end) if self._end in ids else len(ids)
            replies.append(Reply(self._tokenizer.decode(ids[:written]), min(written + 1, len(ids))))
        return replies
