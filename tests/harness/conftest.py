"""Makes the fixture of `offline.py` known to the tests in this folder."""

from offline import offline as offline
