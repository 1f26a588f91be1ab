"""The payloads of applications that answer orders with receipts."""

from dataclasses import dataclass

__all__ = ["Order", "Receipt"]


@dataclass
class Order:
    """The payload that the listener receives."""

    number: int
    customer: str
    price: float


@dataclass
class Receipt:
    """The payload that the listener returns."""

    number: int
    total: float
