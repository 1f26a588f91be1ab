"""The charsets that text may have: the text encodings that Java, IANA and Python all know.

A content type comes with a message, so any sender can name any charset. Python's codec registry also has codecs that
are not text encodings: `bz2` and `zlib` decompress without a bound, `rot13` and `hex` map something else, `punycode`
takes quadratic time, `unicode_escape` reads escapes. The registry also remembers every name that was looked up. So a
name is looked up in the table here, and the registry is asked for codecs of the table only.
"""

import codecs
import re
from collections.abc import Mapping
from encodings.aliases import aliases
from typing import Final

__all__ = ["CHARSETS", "text_codec"]

_BY_ORIGIN: Final[Mapping[str, str]] = {
    "Unicode": ("utf_8 utf_8_sig utf_16 utf_16_be utf_16_le utf_32 utf_32_be utf_32_le"),
    "ISO 646 and ISO 8859": (
        "ascii latin_1 iso8859_1 iso8859_2 iso8859_3 iso8859_4 iso8859_5 iso8859_6 iso8859_7 iso8859_8 "
        "iso8859_9 iso8859_10 iso8859_11 iso8859_13 iso8859_14 iso8859_15 iso8859_16"
    ),
    "Windows": ("cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 cp874 cp932 cp949 cp950"),
    "IBM, and DOS": (
        "cp037 cp273 cp424 cp437 cp500 cp720 cp737 cp775 cp850 cp852 cp855 cp856 cp857 cp858 cp860 cp861 "
        "cp862 cp863 cp864 cp865 cp866 cp869 cp875 cp1006 cp1026 cp1125 cp1140"
    ),
    "China, Taiwan, Hong Kong": ("gb2312 gbk gb18030 hz big5 big5hkscs"),
    "Japan": (
        "shift_jis shift_jis_2004 shift_jisx0213 euc_jp euc_jis_2004 euc_jisx0213 iso2022_jp "
        "iso2022_jp_1 iso2022_jp_2 iso2022_jp_2004 iso2022_jp_3 iso2022_jp_ext"
    ),
    "Korea": ("euc_kr johab iso2022_kr"),
    "Cyrillic, Kazakh, Tajik, Thai": ("koi8_r koi8_u koi8_t kz1048 ptcp154 tis_620"),
    "Apple, HP, Palm": (
        "mac_arabic mac_croatian mac_cyrillic mac_farsi mac_greek mac_iceland mac_latin2 mac_roman "
        "mac_romanian mac_turkish hp_roman8 palmos"
    ),
}
CHARSETS: Final[frozenset[str]] = frozenset(name for names in _BY_ORIGIN.values() for name in names.split())
"""Python's names of the codecs that are allowed; each takes linear time."""

_JAVA: Final[Mapping[str, str]] = {
    "unicode": "utf_16",
    "x_utf_16le_bom": "utf_16",
    "x_utf_32be_bom": "utf_32",
    "x_utf_32le_bom": "utf_32",
    "windows_31j": "cp932",
    "cswindows31j": "cp932",
    "x_windows_874": "cp874",
    "x_windows_949": "cp949",
    "x_windows_950": "cp950",
    "x_ms950_hkscs": "big5hkscs",
    "x_johab": "johab",
    "x_iso_8859_11": "iso8859_11",
    "x_sjis_0213": "shift_jisx0213",
    "x_macroman": "mac_roman",
    "x_maccyrillic": "mac_cyrillic",
    "x_macgreek": "mac_greek",
    "x_macturkish": "mac_turkish",
    "ibm00858": "cp858",
    "ibm01140": "cp1140",
    "x_ibm737": "cp737",
    "x_ibm856": "cp856",
    "x_ibm874": "cp874",
    "x_ibm875": "cp875",
    "x_ibm1006": "cp1006",
}
"""Names in Java that Python has no alias for."""

_NAMES: Final[Mapping[str, str]] = {
    **{alias: codec for alias, codec in aliases.items() if codec in CHARSETS},
    **{codec: codec for codec in CHARSETS},
    **_JAVA,
}
_SEPARATORS: Final = re.compile(r"[^a-z0-9]+")
_LONGEST: Final = 40
"""IANA's registry has no name that is longer (RFC 2978, section 2.3)."""


def text_codec(charset: str) -> codecs.CodecInfo:
    """Return the codec of a charset.

    Args:
        charset: Its name in Java, in IANA's registry or in Python; upper and lower case, `-` and `_` are the same.

    Raises:
        LookupError: No text encoding has this name.
    """
    name = _SEPARATORS.sub("_", charset.lower()) if len(charset) <= _LONGEST else ""
    codec = _NAMES.get(name)
    if codec is None:
        raise LookupError(
            f"unknown charset {charset[:_LONGEST]!r}: use utf-8 or another text encoding that Java and Python both know"
        )
    return codecs.lookup(codec)
