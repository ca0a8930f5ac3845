"""What can go wrong when a cluster is only read: nothing was changed by it."""

from __future__ import annotations

from lardon.dispatch.errors import DispatchError


class ClusterUnreachable(DispatchError):
    """
    The host or its controller did not answer: what was seen before is what is known.

    Ask again later, with a growing delay; the message holds what the tools said.
    """


class UnreadableAnswer(DispatchError):
    """
    The answer has a form that this version of lardon does not know; nothing is guessed from it.

    `version` is what the tool says it is, or an empty text.
    """

    version: str = ""
