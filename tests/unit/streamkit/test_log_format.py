"""Log records as JSON."""

import json
import logging
import sys

from streamkit.log_format import JsonFormatter


def line_of(formatter: JsonFormatter, text: str, *arguments: object, **fields: object) -> dict[str, object]:
    """Return the parsed line of a record with these structured fields."""
    record = logging.makeLogRecord(
        {"name": "shop", "levelno": 30, "levelname": "WARNING", "msg": text, "args": arguments, "created": 1.5} | fields
    )
    record.msecs = 500.0
    text = formatter.format(record)
    assert "\n" not in text
    assert text.isascii()
    parsed: dict[str, object] = json.loads(text)
    return parsed


def test_record_is_one_object_with_its_fields() -> None:
    """Time, level, logger and message, then what `extra` has."""
    assert line_of(JsonFormatter({"worker": 2}), "tea for %s", "zwölf\n\u2028", binding="orders", attempt=3) == {
        "timestamp": "1970-01-01T00:00:01.500Z",
        "level": "WARNING",
        "logger": "shop",
        "message": "tea for zwölf\n\u2028",
        "worker": 2,
        "binding": "orders",
        "attempt": 3,
    }


def test_traceback_is_a_field() -> None:
    """With its lines."""
    try:
        raise ValueError("cold")
    except ValueError:
        line = line_of(JsonFormatter(), "no tea", exc_info=sys.exc_info())
    assert str(line["exception"]).startswith("Traceback")
    assert str(line["exception"]).endswith("ValueError: cold")


def test_any_value_of_a_field_is_written() -> None:
    """Objects as text; what JSON has no form for makes all fields text."""
    assert line_of(JsonFormatter(), "tea", cup={1})["cup"] == "{1}"
    assert line_of(JsonFormatter(), "tea", cup={(1, 2): 3})["cup"] == "{(1, 2): 3}"
    assert line_of(JsonFormatter(), "tea", cup=float("nan"))["cup"] == "nan"


def test_message_may_be_bounded() -> None:
    """It says how long it was."""
    assert line_of(JsonFormatter(most_characters=3), "cinnamon")["message"] == "cin… (8 characters)"
