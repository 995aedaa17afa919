"""Import isolation, the entry point, and what a wheel carries."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "transformers", "vllm", "openai", "lmms_eval", "vlmeval", "numpy", "datasets")


def python(code: str, folder: Path = ROOT, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "modules",
    [
        "mai_plugin",
        "mai_plugin.api",
        "mai_plugin.harness.lmms_eval.registration",
        "mai_plugin.cli",
        "mai_plugin.tiny",
        "mai_plugin.harness.vlmevalkit.command",
        "mai_plugin.core.strategies, mai_plugin.core.agent, mai_plugin.run.runner, mai_plugin.run.session, mai_plugin.settings",
    ],
)
def test_importing_loads_nothing_heavy(modules: str) -> None:
    assert python(f"import sys, {modules}; print([m for m in {HEAVY} if m in sys.modules])") == "[]"


def test_importing_the_package_imports_no_other_module_of_it() -> None:
    """Thus it costs next to nothing, whatever the machine."""
    assert python("import sys, mai_plugin; print([m for m in sys.modules if m.startswith('mai_plugin.')])") == "[]"


def test_the_public_names_are_there() -> None:
    code = "from mai_plugin import *; import mai_plugin as m; print([n for n in m.__all__ if globals()[n] is None])"
    assert python(code) == "[]"
    assert (
        python("import mai_plugin as m; print(set(m.__all__) <= set(dir(m)), hasattr(m, 'nonsense'))") == "True False"
    )


def test_core_imports_nothing_of_the_rest() -> None:
    loaded = (
        "import sys, mai_plugin.core.strategies; print(sorted(m for m in sys.modules if m.startswith('mai_plugin.')))"
    )
    assert "engines" not in python(loaded)
    assert "run" not in python(loaded)
    assert "harness" not in python(loaded)


def test_the_entry_point_is_installed() -> None:
    (point,) = [point for point in entry_points(group="lmms_eval.models") if point.name == "mai_plugin"]
    assert point.value == "mai_plugin.harness.lmms_eval.registration:manifests"


def test_presets_lists_them() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mai_plugin.cli", "presets"], capture_output=True, text=True, check=True
    )
    assert "MAI-Qwen3VL-2B-8B      mai_cascade   Qwen/Qwen3-VL-2B-Instruct + Qwen/Qwen3-VL-8B-Instruct" in done.stdout


def test_a_wheel_carries_configs_and_checkpoints(tmp_path: Path) -> None:
    """Built and unpacked beside nothing of the repository: presets, tasks, wordings and the tiny pair are found."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("mai_plugin-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
        assert "mai_plugin/report/page.html.jinja" in archive.namelist()
        assert "mai_plugin/study/profile/configurations.yaml" in archive.namelist()
    code = (
        "from mai_plugin import resources, settings\n"
        "from mai_plugin.core.prompts import load_prompts\n"
        "s = settings.Settings.from_args('mutual_verification', {'preset': 'MAI-tiny', 'engine': 'scripted', 'engine_args': '{}'})\n"
        "load_prompts()\n"
        "files = [resources.task_configs() / 'lmms_eval' / 'mai_paper.yaml']\n"
        "files += [p / 'model.safetensors' for p in resources.SHIPPED_MODELS.values()]\n"
        "print([str(f) for f in files if not f.is_file()], resources.PACKAGE)"
    )
    printed = python(code, tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert printed == f"[] {tmp_path / 'site' / 'mai_plugin'}"
