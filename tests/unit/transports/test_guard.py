import socket

import pytest

from boxengine.adapters.http.guard import AddressRefused, Guard, is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "0.1.2.3",
        "100.127.255.255",
        "192.0.0.8",
        "192.88.99.1",
        "198.18.0.1",
        "240.0.0.1",
        "fec0::1",
        "feff::1",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b:1::1",
        "100::1",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "2001:2::1",
        "2001:db8::1",
        "3fff::1",
        "5f00::1",
        "2002:a9fe:a9fe::1",
    ],
)
def test_addresses_that_are_not_public_are_known_as_such(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_public_addresses_pass(address: str) -> None:
    assert is_public(address)


def test_of_a_mixed_answer_only_the_public_addresses_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(2, 1, 6, "", (address, 443)) for address in ("10.0.0.1", "1.1.1.1", "1.1.1.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: found)
    assert Guard("h", 443, allow_private=False).addresses() == ("1.1.1.1",)
    assert Guard("h", 443, allow_private=True).addresses() == ("10.0.0.1", "1.1.1.1")


def test_a_name_that_cannot_be_resolved_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(AddressRefused, match="cannot be resolved"):
        Guard("h", 443, allow_private=True).addresses()
