"""What is taken for a secret, what is not, and that no cut of a text into pieces changes it."""

import base64
import json
import time
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from threadhold.runner.scrubbing import MARKER, Known, Scrubber, Stream
from threadhold.runner.secret_forms import VALUE_CHARS_MIN, forms_of
from threadhold.runner.secret_patterns import OPENING_MAX

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKC+/AQEA\nProc-Type: 4\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9"
# Put together here, so that whoever looks for keys in this repository finds none.
KEYS = [
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "11AB_cd2" * 5,
    "glpat-" + "xY1_" * 5,
    "xoxb-" + "1234567890-abcdef",
    "sk-" + "Ab3d" * 12,
    "sk-proj-" + "Ab3_" * 10,
    "sk-ant-" + "api03-" + "Zz9-" * 9,
    "AIza" + "Sy_1-" * 7,
    "AKIA" + "ABCD2345" * 2,
    "sk_" + "live_" + "1aB2" * 6,
    "hf_" + "AbCd" * 9,
    JWT,
    PEM,
]
KNOWN = ["correct horse battery", 'k"\\ey\n/ü=+&', "aaaaaab", "abababab", "ghp_known"]
EVERYTHING = Scrubber(Known(KNOWN))
PATTERNS_ONLY = Scrubber()


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:8])
@pytest.mark.parametrize("around", ["{}", "see {}, please", '{{"k": "{}"}}', "a\\n{}\\n", "%20{}", "({})"])
def test_keys_are_found_wherever_they_stand(key: str, around: str) -> None:
    assert PATTERNS_ONLY.text(around.format(key)) == around.format(MARKER)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("password=hunter22, then", "password=[secret], then"),
        ("DB_PASSWORD = hunter22", "DB_PASSWORD = [secret]"),
        ("api-key:\tabcdef", "api-key:\t[secret]"),
        ('{"clientSecret": "two words", "a": 1}', '{"clientSecret": "[secret]", "a": 1}'),
        ('"{\\"token\\": \\"x y\\", 1}"', '"{\\"token\\": \\"[secret]\\", 1}"'),
        ("{'token': 'it\\'s'}", "{'token': '[secret]'}"),
        ('{"password": "abcdef\\\\", "x": "y"}', '{"password": "[secret]", "x": "y"}'),
        ('{"password": "abc\\\\\\"def", "x": "y"}', '{"password": "[secret]", "x": "y"}'),
        (json.dumps('{"password": "a\\"TAIL\\\\", "x": 1}'), json.dumps('{"password": "[secret]", "x": 1}')),
        (json.dumps({"a": "token: 'x", "b": "it's"}), json.dumps({"a": "token: '[secret]", "b": "it's"})),
        ("('Authorization', 'Basic YTpi')", "('Authorization', '[secret]')"),
        ('[["authorization", "Basic YTpi"]]', '[["authorization", "[secret]"]]'),
        ("Authorization: Basic YTpi\r\nHost: x", "Authorization: [secret]\r\nHost: x"),
        ('"authorization": "Custom a b"', '"authorization": "[secret]"'),
        ("curl -H Bearer abcdefgh.ijklmnop=", "curl -H Bearer [secret]"),
        ("postgresql://me:pa:ss@host/db", "postgresql://me:[secret]@host/db"),
        ("redis://:hush@host", "redis://:[secret]@host"),
        (PEM[:45], MARKER),
        (f"{PEM}\nthen {PEM} end", f"{MARKER}\nthen {MARKER} end"),
        (json.dumps(PEM.splitlines()), f'["{MARKER}"]'),
        ("password=[secret]", "password=[secret]"),
    ],
)
def test_what_looks_like_a_secret_is_replaced_and_what_leads_to_it_stays(text: str, clean: str) -> None:
    assert PATTERNS_ONLY.text(text) == clean
    assert PATTERNS_ONLY.text(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "a token of thanks, a secret, a password",
        "max_tokens=4096 input_tokens: 123456",
        "next_page_token: eyJpZCI6MTIzfQ nextToken=abcdefgh page-token='abc'",
        'the cursor is "eyJpZCI6MTIzfQ=="',
        "task-force-on-something-or-other risk-0123456789abcdef0123456789abcdef",
        "password=$PASSWORD token=${TOKEN} token: <yours>",
        "Bearer authentication; see https://host:8080/a@b and me@host:22",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "token == x",
        "",
    ],
)
def test_what_only_speaks_of_secrets_stays(text: str) -> None:
    assert PATTERNS_ONLY.text(text) == text


def written(value: str) -> list[str]:
    """Return a value as programs write it."""
    raw = value.encode()
    encoded = [base64.b64encode(b"me:"[:n] + raw + b"!" * m).decode() for n in range(4) for m in range(3)]
    return [
        value,
        json.dumps(value),
        json.dumps(json.dumps(value)),
        json.dumps(value).replace("/", "\\/").replace("&", "\\u0026").replace(">", "\\u003e"),
        raw.hex(),
        *(quote(each.rstrip("="), safe="") for each in encoded),
        repr(value),
        quote(raw),
        quote(raw, safe=""),
        quote(raw).lower(),
        *encoded,
    ]


@pytest.mark.parametrize("value", [*KNOWN[:2], "s3cr3t-of-ada", "ünïcödé-söcret", 'a/b&"c+d~~~>>>'])
def test_a_known_value_is_found_in_each_form(value: str) -> None:
    for form in written(value):
        clean = EVERYTHING.text(form) if value in KNOWN else Scrubber(Known([value])).text(form)
        assert MARKER in clean
        assert len(clean) - len(MARKER) <= 12, form


def test_a_value_of_several_lines_is_found_line_by_line() -> None:
    key = "first line is long enough\nshort\nand so is the second one\n"
    scrubber = Scrubber(Known([key]), likely=False)
    assert scrubber.text(key) == MARKER + "\n"
    assert scrubber.text("x: and so is the second one, short") == f"x: {MARKER}, short"


def test_a_value_that_is_too_short_or_the_marker_itself_is_not_looked_for() -> None:
    assert forms_of("a" * (VALUE_CHARS_MIN - 1)) == frozenset()
    assert Scrubber(Known(["secret"])).text("a secret") == "a secret"


def test_a_known_value_counts_for_as_long_as_anybody_holds_it() -> None:
    known = Known()
    scrubber = Scrubber(known, likely=False)
    known.add("hush-hush")
    known.add("hush-hush")
    known.discard("hush-hush")
    assert scrubber.text("hush-hush") == MARKER
    known.discard("hush-hush")
    assert scrubber.text("hush-hush") == "hush-hush"
    assert not known


def test_a_known_value_is_hidden_whole_where_a_pattern_ends_within_it() -> None:
    assert Scrubber(Known(["abcdefg, hij"])).text("password=abcdefg, hij.") == f"password={MARKER}."


def test_values_are_scrubbed_in_texts_keys_and_under_telling_keys() -> None:
    value = {"a": [KEYS[0], 1, None], KEYS[1]: {"password": "abc", "token": 5, "page_token": "p"}, "n": 1.5}
    assert EVERYTHING.value(value) == {
        "a": [MARKER, 1, None],
        MARKER: {"password": MARKER, "token": 5, "page_token": "p"},
        "n": 1.5,
    }
    assert EVERYTHING.value({"token": ["abc", 1], "password": 123456, "secret": {"n": "x", "on": True}}) == {
        "token": [MARKER, 1],
        "password": MARKER,
        "secret": {"n": "x", "on": True},
    }
    clean = {"a": ["b", {"c": (1, "d")}]}
    assert EVERYTHING.value(clean) is clean


def test_a_number_that_is_a_known_value_is_replaced_in_what_tools_say() -> None:
    known = Known(["918273645546"])
    told = {"n": 918273645546, "all": [9182736455461, 918273, True, 1.5], "large": 10**5000}
    assert Scrubber(known).value(told) == {"n": MARKER, "all": [MARKER, 918273, True, 1.5], "large": 10**5000}
    assert Scrubber(known, likely=False).value(told) is told


def test_only_known_values_are_replaced_where_patterns_are_not_asked_for() -> None:
    scrubber = Scrubber(Known(["hush-hush"]), likely=False)
    assert scrubber.value({"password": "hunter22 hush-hush"}) == {"password": f"hunter22 {MARKER}"}


PIECES = st.sampled_from([
    *KEYS, *KNOWN, *(key[: len(key) // 2] for key in KEYS), *(value[:-2] for value in KNOWN),
    "password", "Password", '"token"', "next_", "api_", "=", ": ", ' "', "'", '"', '\\"', "\\", "\n", "\\n", " ",
    "x", "://", "a:b@", "@", ":",
    "Authorization: ", "bearer ", "-----", "-----END", "-----BEGIN ", "PRIVATE KEY", "eyJ", ".", "s", "sk-", "ü",
    "\x00", "\ud800", MARKER,
    "a" * 30, "A1" * 140, ", ", "{", "%20", "\u017f",
    'Authorization", "', '"}', '",', "\\\\", "\\" * 7, "\\" * 69,
])  # fmt: skip
TEXTS = st.lists(PIECES, max_size=8).map("".join)


def streamed(stream: Stream, text: str, cuts: Sequence[int]) -> str:
    """Return what comes of a text that is cut at these places; what is held back stays within bounds."""
    places = [0, *sorted(cuts), len(text)]
    longest = max(OPENING_MAX, *(len(form) for value in KNOWN for form in forms_of(value)))
    out = []
    for start, end in pairwise(places):
        out.append(stream.feed(text[start:end]))
        assert len(stream.held) <= longest
    return "".join([*out, stream.end()])


@given(TEXTS, st.data())
@example(KEYS[0], None)
def test_a_text_in_pieces_becomes_what_it_becomes_as_a_whole(text: str, data: st.DataObject | None) -> None:
    whole = EVERYTHING.text(text)
    if data is not None:
        cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
        assert streamed(EVERYTHING.stream(), text, cuts) == whole
    assert streamed(EVERYTHING.stream(), text, range(len(text))) == whole


@pytest.mark.parametrize(
    "secret", [*KEYS, *KNOWN, "password=hunter22", "://me:hush-hush@"], ids=lambda text: text[:8]
)
def test_a_secret_that_is_cut_anywhere_does_not_pass(secret: str) -> None:
    text = f"before {secret} after"
    whole = EVERYTHING.text(text)
    assert MARKER in whole
    for cut in range(len(text) + 1):
        assert streamed(EVERYTHING.stream(), text, [cut]) == whole


@given(TEXTS)
def test_no_known_value_is_left(text: str) -> None:
    clean = EVERYTHING.text(text)
    assert not any(value in clean for value in KNOWN)


def test_ordinary_text_is_not_held_back() -> None:
    stream = EVERYTHING.stream()
    assert stream.feed("It is well. ") == "It is well. "
    assert (stream.feed("The pass"), stream.held) == ("The ", "pass")
    assert stream.feed("age is narrow. ") == "passage is narrow. "


def test_a_text_that_was_cut_off_within_a_secret_does_not_show_its_beginning() -> None:
    scrubber = Scrubber(Known(["hush-hush-hush"]), likely=False)
    assert scrubber.cut("it is hush-hush") == f"it is {MARKER}"
    assert scrubber.cut("it is hu") == "it is hu"


ENDLESS = [
    "eyJ", "eyJa.", "-----BEGIN ", "-----BEGIN PRIVATE KEY----------END", "://", "://a:", "password", "password:\t\t",
    'token="', "sk-", "-",
    " ", "http://a:b@", "password='x\\'", 'password="x\\', "\\", '"token\\": \\"x\\\\',
    KEYS[0] + " ", "a", "aaaaaa", "abab", "correct horse batter",
]  # fmt: skip


@pytest.mark.parametrize("piece", ENDLESS)
def test_time_grows_with_the_text_and_no_faster(piece: str) -> None:
    small, large = ((piece * (size // len(piece) + 1))[:size] for size in (10_000, 160_000))
    times = [min(timed(text) for _ in range(2)) for text in (small, large)]
    # Sixteen times the text; anything quadratic would take two hundred times as long.
    assert times[1] < 64 * times[0] + 0.05


def timed(text: str) -> float:
    """Return how many seconds of this process a text takes."""
    began = time.process_time()
    EVERYTHING.text(text)
    return time.process_time() - began
