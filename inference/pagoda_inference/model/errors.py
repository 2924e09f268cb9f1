"""What can go wrong before a model serves."""


class ModelLoadError(Exception):
    """A model cannot be served. The text is one sentence for the operator: what is wrong and what to do."""
