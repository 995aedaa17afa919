"""What a user typed, checked: arguments, presets, strategies."""

from mai_plugin.settings.arguments import ARGUMENTS as ARGUMENTS
from mai_plugin.settings.arguments import AUTO_BATCH_SIZE as AUTO_BATCH_SIZE
from mai_plugin.settings.arguments import STORE_FILE as STORE_FILE
from mai_plugin.settings.functions import load_agreement as load_agreement
from mai_plugin.settings.presets import implied_strategy as implied_strategy
from mai_plugin.settings.presets import preset_names as preset_names
from mai_plugin.settings.presets import preset_strategy as preset_strategy
from mai_plugin.settings.presets import read_preset as read_preset
from mai_plugin.settings.settings import Settings as Settings
from mai_plugin.settings.strategies import strategy_spec as strategy_spec
