"""Speculative decoding: the next tokens are guessed, and the model says in one step which guesses are right."""
