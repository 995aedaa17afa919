"""What several tests share: stores, servers, checkpoints, harness folders."""
