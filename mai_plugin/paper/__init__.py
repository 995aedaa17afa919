"""The figures that arXiv 2604.04929 printed."""
