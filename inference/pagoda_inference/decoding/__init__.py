"""From logits to text: sampling, stop strings, incremental detokenising."""
