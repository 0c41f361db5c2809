r"""What secrets look like that nobody has told us: keys with a known beginning, headers, assignments, private keys.

A secret is found by its opening, which is bounded, and goes on until something that ends it. So a text that comes in
chunks need never be held back for longer than an opening, and each regular expression here takes linear time.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

LOOK_BEHIND: Final = 16
"""How many characters before an opening may decide whether it is one."""
END_MAX: Final = 64
"""How long the end of a secret is at most."""
SIGHT_CHARS: Final = 4


@dataclass(frozen=True, slots=True)
class Step:
    """A part of an opening: what matches it, what matches each beginning of it, how long it is, and its words if it is
    made of them."""

    whole: str
    begun: str
    most: int
    words: tuple[str, ...] = ()


def word(text: str) -> Step:
    """Match exactly this."""
    begun = ""
    for char in reversed(text):
        begun = f"(?:{re.escape(char)}{begun})?"
    return Step(re.escape(text), begun, len(text), (text,))


def one_of(*texts: str) -> Step:
    """Match one of these."""
    words = [word(text) for text in texts]
    whole = "|".join(each.whole for each in words)
    begun = "|".join(each.begun[:-1] for each in words)  # each of them alone would match nothing as well
    return Step(f"(?:{whole})", f"(?:{begun})?", max(each.most for each in words), texts)


def some(chars: str, least: int, most: int) -> Step:
    """Match so many characters of a class."""
    return Step(f"{chars}{{{least},{most}}}", f"{chars}{{0,{most}}}", most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One way in which secrets are written.

    Args:
        before: what must stand before it, as look-behinds.
        kept: what shows that a secret follows, and is no part of it.
        opening: how the secret begins.
        after: what must follow on the opening, as a look-ahead at one character.
        until: what ends the secret; its match is a part of it, so most only look ahead. None for a secret that its
            opening holds whole.
        any_case: whether the case of letters is nothing to it, in `kept` and `opening`.
    """

    opening: Sequence[Step]
    kept: Sequence[Step] = ()
    before: str = ""
    after: str = ""
    until: "re.Pattern[str] | None" = field(default=None)
    any_case: bool = False

    @property
    def most(self) -> int:
        """How long an opening is at most, with what is kept."""
        return sum(step.most for step in (*self.kept, *self.opening))

    def whole(self, name: str) -> str:
        """Return what matches the opening; the secret begins where the group `from_<name>` is."""
        kept = "".join(step.whole for step in self.kept)
        opening = "".join(step.whole for step in self.opening)
        found = self._cased(f"{kept}(?P<from_{name}>){opening}")
        return f"(?P<{name}>{self.before}{found}{self.after})"

    def begun(self) -> str:
        """Return what matches each beginning of an opening that the text ends with."""
        found = ""
        for step in reversed((*self.kept, *self.opening)):
            found = f"(?:{step.whole}{found}|{step.begun})" if found else step.begun
        return self._cased(found)

    def _cased(self, regex: str) -> str:
        return f"(?ai:{regex})" if self.any_case else regex

    @property
    def sights(self) -> set[tuple[str, str]]:
        """Where to look closer: at each of these characters, if a text of this regular expression follows."""
        words = (*self.kept, *self.opening)[0].words
        if not self.any_case:
            return {(each[0], re.escape(each[1:SIGHT_CHARS])) for each in words}
        rest = {each: f"(?ai:{re.escape(each[1:SIGHT_CHARS])})" for each in words}
        return {(first, rest[each]) for each in words for first in (each[0].lower(), each[0].upper())}


# Not within a longer word, but behind an escaped character of JSON, a URL or Python.
_APART: Final = (
    r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\x[0-9A-Fa-f]{2}))"
)
# Tokens that say where a list goes on are for the model.
_NO_PAGE: Final = "".join(
    rf"(?<!{word})(?<!{word}[_-])" for word in ("page", "next", "continuation", "sync", "cancellation")
)
_NAMES: Final = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    *(
        f"{first}{between}key"
        for first in ("api", "access", "account", "private", "secret")
        for between in ("", "_", "-")
    ),
)
_BLANKS: Final = some(r"[ \t]", 0, 2)
_SIGNS: Final = one_of("=", ":", ":=", "=>")
_CLOSING: Final = some(r"[\\\"']", 0, 3)
_QUOTES: Final = some(r"[\\\"']", 1, 3)
_PLAIN: Final = some(r"[^\s\"'`,;&(){}\[\]<>\\|$*=]", 1, 1), some(r"[^\s\"'`,;&()\[\]{}<>\\]", 5, 5)
_END_OF_PLAIN: Final = re.compile(r"(?=[\s\"'`,;&()\[\]{}<>\\])")
_KEY: Final = r"[A-Za-z0-9_-]"
_END_OF_KEY: Final = re.compile(r"(?=[^A-Za-z0-9_-])")


def _key(*begins: str, least: int, chars: str = _KEY, before: str = "") -> Pattern:
    return Pattern(opening=(one_of(*begins), some(chars, least, least)), until=_END_OF_KEY, before=before)


def _assigned(quotes: str, end: str) -> Pattern:
    """Match a name of a secret with a quoted value."""
    return Pattern(
        kept=(one_of(*_NAMES), _CLOSING, _BLANKS, _SIGNS, _BLANKS, word(quotes)),
        opening=(some(r"[^\s\"'\\]", 1, 1),),
        before=_NO_PAGE,
        until=re.compile(end),
        any_case=True,
    )


PATTERNS: Final = (
    Pattern(
        opening=(
            word("-----BEGIN "),
            some("[A-Z0-9 ]", 0, 24),
            word("PRIVATE KEY"),
            some("[A-Z ]", 0, 8),
            word("-----"),
        ),
        # Its lines may stand in a list, and it may have been cut off.
        until=re.compile(r"-----END[A-Z0-9 ]{0,48}-----|(?=[^A-Za-z0-9+/=\s\\:;,.()\"'-])"),
    ),
    Pattern(
        kept=(word("authorization"), _CLOSING, _BLANKS, _SIGNS, _BLANKS, _CLOSING),
        opening=(some(r"[^\s\"'\\]", 2, 2),),
        until=re.compile(r"(?=[\r\n\"'\\])"),
        any_case=True,
    ),
    Pattern(
        # As a pair, in a list of headers.
        kept=(word("authorization"), _QUOTES, word(","), _BLANKS, _QUOTES),
        opening=(some(r"[^\s\"'\\]", 2, 2),),
        until=re.compile(r"(?=[\r\n\"'\\])"),
        any_case=True,
    ),
    Pattern(
        kept=(word("bearer"), some(r"[ \t]", 1, 2)),
        opening=(some("[A-Za-z0-9._~+/=-]", 16, 16),),
        until=re.compile("(?=[^A-Za-z0-9._~+/=-])"),
        any_case=True,
    ),
    Pattern(
        opening=(word("eyJ"), some(_KEY, 10, 512), word("."), some("[A-Za-z0-9_.-]", 8, 8)),
        before=_APART,
        until=re.compile("(?=[^A-Za-z0-9_.=-])"),
    ),
    _key("ghp_", "gho_", "ghu_", "ghs_", "ghr_", least=20, chars="[A-Za-z0-9]"),
    _key("github_pat_", "glpat-", least=16),
    _key("xoxa-", "xoxb-", "xoxe-", "xoxe.", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-", least=8),
    _key("sk-ant-", "sk-proj-", "sk-svcacct-", "sk-admin-", "sk-or-", least=16),
    _key("sk-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", least=20, chars="[A-Za-z0-9]", before=_APART),
    _key("AIza", least=30),
    _key("ya29.", "GOCSPX-", least=16),
    _key("AKIA", "ASIA", least=16, chars="[A-Z0-9]", before=_APART),
    _key("hf_", "npm_", least=30, chars="[A-Za-z0-9]", before=_APART),
    _key("pypi-", least=40),
    # A quote behind a backslash that is escaped itself is the end; JSON within JSON doubles them.
    _assigned('"', r"(?<!\\)(?:\\\\){0,16}(?=\")|(?=[\r\n])"),
    # One that has no end in its text ends with the JSON text that it stands in.
    _assigned("'", r"(?<!\\)(?:\\\\){0,16}(?=')|(?<!\\)(?=\"[,}\]:])|(?=[\r\n])"),
    _assigned('\\"', r"(?<!\\)(?:\\{4}){0,8}(?=\\\")|(?=[\r\n])"),
    Pattern(
        kept=(one_of(*_NAMES), _CLOSING, _BLANKS, _SIGNS, _BLANKS),
        opening=_PLAIN,
        before=_NO_PAGE,
        until=_END_OF_PLAIN,
        any_case=True,
    ),
    Pattern(
        kept=(word("://"), some(r"[^\s/:@\"'<>\\]", 0, 128), word(":")),
        opening=(some(r"[^\s/@\"'<>\\]", 1, 256),),
        after="(?=@)",
    ),
)


def _openings() -> dict[str, re.Pattern[str]]:
    found: dict[str, list[str]] = {}
    for number, each in enumerate(PATTERNS):
        for first in sorted({first for first, _ in each.sights}):
            found.setdefault(first, []).append(each.whole(f"p{number}"))
    return {first: re.compile("|".join(regexes)) for first, regexes in found.items()}


OPENINGS: Final = _openings()
"""Match openings, by their first character."""
SIGHT: Final = re.compile(
    "|".join(sorted({re.escape(first) + rest for each in PATTERNS for first, rest in each.sights}))
)
"""Finds the first place where there may be an opening; quicker than the openings themselves."""
BEGUN: Final = re.compile(rf"(?:{'|'.join(each.begun() for each in PATTERNS)})\Z")
"""Finds where a text's end may be the beginning of an opening; at the very end of the text at the latest."""
OPENING_MAX: Final = max(each.most for each in PATTERNS)

NAMED: Final = re.compile(rf".*{_NO_PAGE}(?:{'|'.join(_NAMES)}|authorization)", re.IGNORECASE | re.DOTALL)
"""Matches a whole key under which a secret stands."""
