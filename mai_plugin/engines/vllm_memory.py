"""How models that are resident together share the memory of their GPUs: weights first, the rest in equal parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30
USABLE = 0.90
"""Share of a GPU's memory that engines may plan with: CUDA contexts and graphs live in what is left."""
LEAST_CACHE = 1.0 * GIB
"""Least room per engine and GPU beside the weights, for activations and KV cache."""


@dataclass(frozen=True)
class Gpu:
    """Memory of a GPU, in bytes."""

    total: int
    free: int


@dataclass(frozen=True)
class Claim:
    """What an engine needs.

    Attributes:
        devices: the GPUs it runs on.
        weights: bytes of weights on each of them.
        fixed: the share of each GPU that the user gave it (`gpu_memory_utilization`), None to work one out.
    """

    devices: tuple[int, ...]
    weights: int
    fixed: float | None = None


def share_memory(gpus: Mapping[int, Gpu], claims: Mapping[str, Claim]) -> dict[str, float]:
    """Divide the free memory of some GPUs among engines.

    Each engine gets its weights and an equal part of what all weights leave free; an engine on several GPUs gets the
    least that one of them has for it.

    Args:
        gpus: id to memory, as it is before any of the engines starts.
        claims: role to what it needs.

    Returns:
        Role to `gpu_memory_utilization`, a share of the GPU's *total* memory as vLLM wants it.

    Raises:
        ValueError: they do not fit; the line says by how much and what to change.
    """
    shares = dict.fromkeys(claims, 1.0)
    for device, gpu in gpus.items():
        here = {role: claim for role, claim in claims.items() if device in claim.devices}
        free = min(USABLE * gpu.total, gpu.free - (1 - USABLE) * gpu.total / 2)
        open_roles = [role for role, claim in here.items() if claim.fixed is None]
        for claim in here.values():
            free -= claim.weights if claim.fixed is None else claim.fixed * gpu.total
        room = free / max(1, len(open_roles))
        if (open_roles and room < LEAST_CACHE) or free < 0:
            wanted = ", ".join(
                f"{role} {claim.weights / GIB:.1f} GiB of weights"
                if claim.fixed is None
                else f"{role} gpu_memory_utilization={claim.fixed}"
                for role, claim in here.items()
            )
            raise ValueError(
                f"GPU {device} has {gpu.free / GIB:.1f} of {gpu.total / GIB:.1f} GiB free, too little for {wanted}: "
                'free it, take smaller models, put one elsewhere (large_args={"device_ids":[1]}), or spread one '
                "(tensor_parallel_size)"
            )
        for role, claim in here.items():
            share = claim.fixed if claim.fixed is not None else (claim.weights + room) / gpu.total
            shares[role] = min(shares[role], share)
    return {role: int(share * 1000) / 1000 for role, share in shares.items()}


def weight_bytes(model: str, revision: str | None = None) -> int | None:
    """Bytes of a checkpoint's weights: of its files on disk or in the Hub's cache, else as the Hub lists them.

    Returns:
        None if that cannot be found out.
    """
    from huggingface_hub import model_info, snapshot_download

    folder = Path(model).expanduser()
    if not folder.is_dir():
        try:
            folder = Path(snapshot_download(model, revision=revision, local_files_only=True))
        except Exception:  # not in the cache, or no name of the Hub's at all
            try:
                files = model_info(model, revision=revision, files_metadata=True).siblings or []
            except Exception:  # no access: the caller asks the user
                return None
            return _sum({file.rfilename: file.size or 0 for file in files})
    return _sum({path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()})


def _sum(sizes: Mapping[str, int]) -> int | None:
    for kind in (".safetensors", ".bin", ".pt"):
        found = [size for name, size in sizes.items() if name.endswith(kind)]
        if found:
            return sum(found)
    return None
