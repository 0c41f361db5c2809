"""In which forms a value that is known to be a secret may stand in texts. Values in, values out."""

import base64
import json
import re
from typing import Final
from urllib.parse import quote, quote_plus

VALUE_CHARS_MIN: Final = 6
"""Shorter values are not looked for: they would be found in everything."""
LINE_CHARS_MIN: Final = 16
"""Lines of a value that has several are looked for one by one, if they are as long as this."""


def forms_of(value: str) -> frozenset[str]:
    """Return a value as it is, and as JSON, Python, base64, hex and URLs write it; nothing if it is too short."""
    value = value.strip()
    if len(value) < VALUE_CHARS_MIN:
        return frozenset()
    forms = {value, repr(value)[1:-1], *_json_forms(value)}
    raw = value.encode("utf-8", "surrogatepass")
    for form in {quote(raw), quote(raw, safe=""), quote_plus(raw)}:
        forms |= {form, _lower(form)}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = {encode(raw).decode().rstrip("=")}
        encoded |= {_inner(encode(b"\0" * before + raw).decode(), before, len(raw)) for before in range(3)}
        forms |= encoded | {_lower(quote(form, safe="")) for form in encoded}
        forms |= {quote(form, safe="") for form in encoded}
    forms |= {raw.hex(), raw.hex().upper()}
    lines = value.splitlines()
    if len(lines) > 1:
        forms.update(line.strip() for line in lines)
        forms = {form for form in forms if form not in lines or len(form) >= LINE_CHARS_MIN}
    return frozenset(form for form in forms if len(form) >= VALUE_CHARS_MIN)


def _lower(form: str) -> str:
    """Return a text of a URL with its hexadecimal digits in lower case."""
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), form)


def _json_forms(value: str) -> set[str]:
    """Return a text as JSON, also as encoders write it that are used for pages, and within a text of JSON in turn."""
    forms = {json.dumps(value, ensure_ascii=ascii)[1:-1] for ascii in (True, False)}
    forms |= {form.replace("/", "\\/") for form in forms}
    forms |= {re.sub("[&<>]", lambda found: f"\\u{ord(found[0]):04x}", form) for form in forms}
    return forms | {json.dumps(form, ensure_ascii=False)[1:-1] for form in forms}


def _inner(encoded: str, before: int, size: int) -> str:
    """Return the part of a base64 text that says `size` bytes behind others, whatever surrounds them."""
    return encoded[-(-before * 8 // 6) : (before + size) * 8 // 6]
