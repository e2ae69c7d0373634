"""The one exception whose message is meant for the person at the keyboard."""


class UserError(Exception):
    """Something the user can mend: one paragraph that says what is wrong, where, and what to do.

    `experiments.cli` prints it without a traceback and exits with status 2.
    """
