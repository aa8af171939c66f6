"""JAAS: Kafka's own examples, Java's words, and refusals that show no value."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker.security.sasl import jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options(text: str) -> dict[str, str]:
    (module,) = jaas.parse(text)
    return dict(module.options)


def test_kafkas_example() -> None:
    (module,) = jaas.parse(f'{PLAIN} required \\\n username="admin" password="admin-secret";'.replace("\\\n", ""))
    assert (module.name, module.simple_name, module.flag) == (PLAIN, "PlainLoginModule", "required")
    assert module.options == {"username": "admin", "password": "admin-secret"}
    assert "admin-secret" not in repr(module)


@pytest.mark.parametrize(("value", "read"), [
    ('"a b"', "a b"),
    ("'a \"b\"'", 'a "b"'),
    (r'"a\"b\\c"', 'a"b\\c'),
    (r'"\t\101\60\0608\q"', "\tA0" + "08q"),
    ("word", "word"),
    ("kafka.common.X$Y", "kafka.common.X$Y"),
    ('""', ""),
    ('"ä€𝄞"', "ä€𝄞"),
    ('"// no comment /* */ ; = {}"', "// no comment /* */ ; = {}"),
])  # fmt: skip
def test_values(value: str, read: str) -> None:
    assert options(f"M required p={value};") == {"p": read}


def test_comments_and_spaces_are_left_out() -> None:
    text = "// first\nM /* of\nours */ Required\n\ta = 'b' // more\n;\n"
    assert options(text) == {"a": "b"}


def test_names_and_numbers_in_quotes() -> None:
    assert options('M required "prop name"=value index="3" more="value1 = 1, value2 = 2";') == {
        "prop name": "value",
        "index": "3",
        "more": "value1 = 1, value2 = 2",
    }


@pytest.mark.parametrize("flag", jaas.FLAGS)
def test_every_flag_is_read(flag: str) -> None:
    (module,) = jaas.parse(f"test.Module {flag};")
    assert (module.name, module.flag, dict(module.options)) == ("test.Module", flag, {})


def test_the_last_of_two_options_counts() -> None:
    assert options("M required a=b a=c;") == {"a": "c"}


def test_several_entries() -> None:
    assert [module.name for module in jaas.parse("A required; B optional x=y;")] == ["A", "B"]


@pytest.mark.parametrize("text", [
    "", "  // nothing", "M", "M;", "M required", "M required a", "M required a=", "M required a=;", "M required a=b",
    "M needed;", "M required =b;", "M required a==b;", 'M required a="hidden;', "M required a=hidden123 b;",
    "M required a=1234;", "M required a=-x;", "1M required;", "M required a='hidden\nhidden';", "M required; }",
    'M required a="hidden\\',
])  # fmt: skip
def test_what_is_refused_is_not_shown(text: str) -> None:
    with pytest.raises(jaas.BadJaas) as caught:
        jaas.parse(text)
    assert "hidden" not in str(caught.value)
    assert "1234" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_much_is_refused() -> None:
    with pytest.raises(jaas.BadJaas, match="characters"):
        jaas.parse("M required a='" + "x" * jaas.TEXT_MAX + "';")


@given(st.text(alphabet="Mr aequired=;'\"\\/*{}\n01ä$.-", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(jaas.BadJaas):
        jaas.parse(text)


@given(st.text(max_size=40))
def test_any_password_can_be_written(password: str) -> None:
    written = "".join(f"\\{c}" if c in '"\\' else {"\n": "\\n", "\r": "\\r"}.get(c, c) for c in password)
    assert options(f'M required password="{written}";') == {"password": password}
