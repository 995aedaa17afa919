"""VLMEvalKit: `mai vlmevalkit`, its model class, its files and its results."""

from mai_plugin.harness.vlmevalkit.command import main as main
from mai_plugin.harness.vlmevalkit.command import register as register
