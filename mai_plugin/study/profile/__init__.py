"""`mai profile`: latency of the parts of a model, on simulated data (tables 1 to 4)."""
