"""Where a run tells what it measures while it runs: Weights & Biases, a file, or nowhere."""
