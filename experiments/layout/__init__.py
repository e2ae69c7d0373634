"""The same chat, laid out differently: where a prompt's changing parts stand, and what that does to a prefix cache."""
