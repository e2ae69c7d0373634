"""Who owns which block: pools, reference counts, sharing. One allocator per file."""
