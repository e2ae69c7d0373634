"""What `experiments.bench_cache` measures, one question per module."""
