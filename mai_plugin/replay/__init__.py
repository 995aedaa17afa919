"""`mai replay`: other policies from stored calls, without a model."""
