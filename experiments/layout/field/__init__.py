"""Where a prompt says what changes from request to request: one place, one file."""
