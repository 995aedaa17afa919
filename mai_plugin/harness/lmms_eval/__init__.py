"""lmms-eval: registration, the three models, tasks, one command, and its results."""
