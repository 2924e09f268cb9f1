"""What can go wrong with a model as a whole."""


class ModelLoadError(Exception):
    """A model cannot be served. The text is one sentence for the operator: what is wrong and what to do."""


def first_line(error: Exception) -> str:
    """The first line of what an error says of itself, or its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class BackendLost(BaseException):
    """The model can run no step any more, and the engine has to end. The text is one sentence for the operator.

    Not an Exception: what guards against a request that fails must not catch it and go on.
    """
