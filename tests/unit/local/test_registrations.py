import pytest

from logyard.local.registrations import Registration, parse


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"host":"h","port":9,"logyard_http":"127.0.0.1:8080"}', Registration(3, "h", 9, 8080, 7)),
        (b'{"host":"h","port":9,"logyard_http":"http://127.0.0.1:8080/"}', Registration(3, "h", 9, 8080, 7)),
        (b'{"host":null,"port":-1,"version":5}', Registration(3, None, -1, None, 7)),
        # A person's hand, or half a write: the broker is registered, and nobody knows where.
        (b"garbage", Registration(3, None, None, None, 7)),
        (b"[3]", Registration(3, None, None, None, 7)),
        (b'{"host":"h","port":9,"logyard_http":"nowhere"}', Registration(3, "h", 9, None, 7)),
    ],
)
def test_a_registration_is_read(data: bytes, expected: Registration) -> None:
    assert parse(3, data, 7) == expected
