"""Tokenizers as studies of prompts need them: ids and back, piece by piece, special tokens told apart."""
