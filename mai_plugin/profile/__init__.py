"""`mai profile`: latency of a vision-language model's parts on simulated data (arXiv 2604.04929, tables 1 to 4)."""
