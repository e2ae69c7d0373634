"""Writing K and V of new tokens into their slots."""
