"""What can be learnt from stored runs.  Reads call stores and harness results, never runs a model."""
