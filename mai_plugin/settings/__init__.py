"""What a user typed, checked: arguments, presets, strategies."""

from mai_plugin.settings.settings import AGREEMENTS as AGREEMENTS
from mai_plugin.settings.settings import AUTO_BATCH_SIZE as AUTO_BATCH_SIZE
from mai_plugin.settings.settings import DEFAULT_PRESET as DEFAULT_PRESET
from mai_plugin.settings.settings import STORE_FILE as STORE_FILE
from mai_plugin.settings.settings import Settings as Settings
from mai_plugin.settings.settings import StrategyName as StrategyName
from mai_plugin.settings.settings import agreement as agreement
from mai_plugin.settings.settings import preset_names as preset_names
from mai_plugin.settings.settings import preset_strategy as preset_strategy
