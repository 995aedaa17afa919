"""The analysis of arXiv 2604.04929, run again.  Nothing but the command line imports it."""
