"""The `mai` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Multi-agent inference for vision-language models. Evaluations run in lmms-eval: "
    "lmms-eval --model mai_cascade --tasks chartqa",
)


@app.command()
def demo(
    n: Annotated[int, typer.Option("-n", min=1, help="Number of charts.")] = 300,
    out: Annotated[Path, typer.Option(help="Folder for data, logs and results.")] = Path("out/demo"),
) -> None:
    """Run the tiny pair that ships with the package through the real lmms-eval, with baselines, on toy bar charts."""
    from mai_plugin.demo import DemoFailed, main

    try:
        main(out, n)
    except DemoFailed as error:
        typer.echo(f"mai: {error}", err=True)
        raise typer.Exit(1) from None


@app.command()
def presets() -> None:
    """List the presets: name, the lmms-eval model that takes it, and the checkpoints that it loads."""
    import yaml

    from mai_plugin.resources import task_configs
    from mai_plugin.settings import preset_names

    models_of = {"single": "mai_single", "transfer": "mai_transfer", "mutual_verification": "mai_cascade"}
    for name in preset_names():
        content = yaml.safe_load((task_configs() / "presets" / f"{name}.yaml").read_text(encoding="utf-8"))
        models = " + ".join(str(content[role]) for role in ("small", "large", "model") if role in content)
        typer.echo(f"{name:<22} {models_of[content['strategy']]:<13} {models}")


if __name__ == "__main__":
    app()
