"""Moving whole blocks: copy-on-write, and swapping to and from a contiguous buffer."""
