"""What a person can mend: files of a model, its memory, its chat template. Messages say what, where and what to do."""


class ModelError(ValueError):
    """Base of the errors of this room whose message is meant for people."""


class ModelFileError(ModelError):
    """A file of a model is missing, broken, of another shape than its config says, or not to be trusted."""


class UnsupportedModel(ModelError):
    """The model is whole, but of a kind that is not built here."""


class NotEnoughMemory(ModelError, MemoryError):
    """The weights do not fit into the memory that is left."""


class ChatError(ModelError):
    """A chat that cannot be turned into a prompt."""
