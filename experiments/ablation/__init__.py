"""What a kernel costs: one point of a sweep, compiled or timed, never without a passed check."""
