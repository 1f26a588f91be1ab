"""Errors of administration, in addition to those of `rocket_client`."""

__all__ = ["GroupNotFoundError", "MoveRefusedError"]


class GroupNotFoundError(ValueError):
    """No broker has the group.

    Attributes:
        group: The group.
    """

    def __init__(self, group: str) -> None:
        super().__init__(f"group {group} does not exist; `streamkit group list` shows all groups")
        self.group = group


class MoveRefusedError(ValueError):
    """Offsets of a group cannot be moved so.

    Attributes:
        group: The group.
    """

    def __init__(self, group: str, reason: str) -> None:
        super().__init__(f"the offsets of group {group} were not moved: {reason}")
        self.group = group
