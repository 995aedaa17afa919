"""Multi-agent inference for vision-language models, inside the harnesses that people evaluate with.

A small and a large model share one question: both answer briefly; if they agree, done; else the small one reasons,
and where that still disagrees the large one answers after reading that reasoning (arXiv 2604.04929).

The parts: `mai_plugin.core` (strategies, prompts, answers; pure Python), `mai_plugin.engines` (what runs a model),
`mai_plugin.run` (many questions at once), `mai_plugin.harness` (lmms-eval), `mai_plugin.tiny` (the pair that ships).
Importing this package loads none of torch, transformers, vllm and the harnesses.
"""

__version__ = "0.1.0"
