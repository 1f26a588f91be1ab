"""Charsets of text: only text encodings, whatever a message names."""

import bz2
import zlib

import pytest

from streamkit.errors import MessageConversionError
from streamkit.messaging import CompositeMessageConverter, Message
from streamkit.messaging.charset import CHARSETS, text_codec
from tests.traced_memory import memory_below

CONVERTER = CompositeMessageConverter()
MIB = 1 << 20


def read(data: bytes, charset: str) -> object:
    """Return the text that a `str` listener gets."""
    headers = {"contentType": f"text/plain;charset={charset}"}
    return CONVERTER.payload_reader(str)(Message(data, headers))


@pytest.mark.parametrize(
    ("charset", "bomb"),
    [("bz2", bz2.compress(bytes(32 * MIB))), ("zlib", zlib.compress(bytes(32 * MIB))), ("zip", b"")],
)
def test_compression_codec_is_no_charset(charset: str, bomb: bytes) -> None:
    """Nothing is decompressed."""
    with memory_below(MIB), pytest.raises(MessageConversionError, match=f"unknown charset '{charset}'"):
        read(bomb, charset)


@pytest.mark.parametrize(
    "charset",
    [
        "base64",
        "hex",
        "quopri",
        "uu",
        "rot13",
        "idna",
        "punycode",
        "unicode_escape",
        "raw_unicode_escape",
        "utf-7",
        "mbcs",
        "oem",
        "undefined",
        "charmap",
    ],
)
def test_other_python_codecs_are_no_charsets(charset: str) -> None:
    """Codecs that map something else or take quadratic time."""
    with pytest.raises(MessageConversionError, match="unknown charset"):
        read(b"a" * 10, charset)
    with pytest.raises(MessageConversionError, match="unknown charset"):
        CONVERTER.payload_writer()(Message("a", {"contentType": f"text/plain;charset={charset}"}))


@pytest.mark.parametrize(
    ("charset", "codec"),
    [
        ("UTF-8", "utf-8"),
        ("utf8", "utf-8"),
        ("US-ASCII", "ascii"),
        ("ISO-8859-1", "latin-1"),
        ("latin1", "latin-1"),
        ("windows-1252", "cp1252"),
        ("windows-31j", "cp932"),
        ("Shift_JIS", "shift_jis"),
        ("GB18030", "gb18030"),
        ("Big5-HKSCS", "big5hkscs"),
        ("x-windows-949", "cp949"),
        ("UTF-16BE", "utf-16-be"),
        ("IBM037", "cp037"),
        ("KOI8-R", "koi8-r"),
    ],
)
def test_javas_charset_names_are_known(charset: str, codec: str) -> None:
    """A Java application may name any of them."""
    assert text_codec(charset).decode("aé".encode(codec, "replace"))[0] == "aé".encode(codec, "replace").decode(codec)


def test_each_charset_decodes_and_encodes_text() -> None:
    """Every entry of the table."""
    for charset in CHARSETS:
        codec = text_codec(charset)
        data = codec.encode("abc")[0]
        assert type(data) is bytes
        assert codec.decode(data)[0] == "abc"


def test_long_charset_name_is_truncated_in_errors() -> None:
    """The error quotes the beginning of the name."""
    with pytest.raises(LookupError) as caught:
        text_codec("x" * 30_000)
    assert len(str(caught.value)) < 200
