"""Which addresses a webhook may reach.

A webhook's URL often comes from outside, and a name that resolves to a public address when it is checked may resolve to
a private one a moment later (DNS rebinding). So names are resolved here, and connections go to the checked addresses.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from threading import Lock

PRIVATE = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this host
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared by providers, and by some clouds' internal services
            "127.0.0.0/8",
            "169.254.0.0/16",  # link-local, with the clouds' metadata services
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
            "2001::/23",
            "2001:db8::/32",
            "3fff::/20",
        ),
    )
)
"""From IANA's registries of special addresses. Written out, because versions of Python differ in which addresses
``ipaddress`` treats as global: some include ``fec0::/10``."""
GLOBAL_V6 = IPv6Network("2000::/3")
"""All addresses allocated so far; everything else is special."""
NAT64 = IPv6Network("64:ff9b::/96")
REMEMBERED = 30.0
"""Seconds for which a name's addresses are kept."""
LAST_FOR = 300.0
"""Seconds for which an address without a connection comes after the others. Where packets to it are dropped, as in many
networks without IPv6, each try takes the whole timeout."""


class AddressRefused(Exception):
    """The host resolves to nothing, or only to addresses that are not public."""


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet.

    It does not if it is loopback, private, link-local (which includes the clouds' metadata services), shared, multicast
    or reserved, or if it is an IPv6 form of such an IPv4 address.
    """
    ip = ip_address(address.partition("%")[0])
    inner = _embedded(ip)
    if inner is not None:
        return is_public(str(inner))
    if isinstance(ip, IPv6Address) and ip not in GLOBAL_V6:
        return False
    return not any(ip in network for network in PRIVATE if network.version == ip.version)


def _embedded(ip: IPv4Address | IPv6Address) -> IPv4Address | None:
    if isinstance(ip, IPv4Address):
        return None
    if ip in NAT64:
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)


def is_private_literal(host: str) -> bool:
    """Whether a host is a non-public address rather than a name: no name server's answer can ever change that."""
    try:
        return not is_public(host)
    except ValueError:
        return False


def resolve(host: str, port: int) -> list[str]:
    """The host's addresses, in the system's order of preference.

    Raises:
        AddressRefused: there are none.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressRefused(f"{host} cannot be resolved: {error}") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True, slots=True)
class Known:
    """The addresses that a name resolved to, and until when they are trusted (monotonic seconds)."""

    addresses: tuple[str, ...]
    until: float


class Guard:
    """Knows the addresses of one host that may be connected to."""

    def __init__(self, host: str, port: int, *, allow_private: bool) -> None:
        self._host = host
        self._port = port
        self._allow_private = allow_private
        self._lock = Lock()
        self._known: Known | None = None
        self._failed: dict[str, float] = {}
        """Addresses without a connection, and until when they come last (monotonic seconds)."""

    def addresses(self) -> Sequence[str]:
        """At least one address.

        Raises:
            AddressRefused: none may be used.
        """
        with self._lock:
            now = time.monotonic()
            if self._known is None or now >= self._known.until:
                self._known = Known(self._checked(resolve(self._host, self._port)), now + REMEMBERED)
                self._failed = {address: until for address, until in self._failed.items() if now < until}
            return tuple(sorted(self._known.addresses, key=self._failed.__contains__))

    def failed(self, address: str) -> None:
        """There was no connection to this address: the others are tried before it for a while."""
        with self._lock:
            self._failed[address] = time.monotonic() + LAST_FOR

    def forget(self) -> None:
        """Makes the next call resolve the name again, because its addresses did not answer."""
        with self._lock:
            self._known = None
            self._failed.clear()

    def _checked(self, found: Sequence[str]) -> tuple[str, ...]:
        allowed = tuple(found if self._allow_private else filter(is_public, found))
        if not allowed:
            raise AddressRefused(
                f"{self._host} resolves to {', '.join(found)}, which is not public; allow_private: true permits it"
            )
        return allowed
