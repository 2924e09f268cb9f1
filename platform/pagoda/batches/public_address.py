"""Addresses that others name and this server calls: only what anybody on the internet could call, too.

A name is looked up once, and the address that was checked is the one connected to: a name that leads elsewhere a moment
later leads nowhere. For development alone, PAGODA_UNSAFE_WEBHOOKS_TO_PRIVATE_ADDRESSES lets this machine and private
networks be called as well.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from django.conf import settings

TRANSLATED = tuple(ip_network(each) for each in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96"))
"""IPv6 that stands for an IPv4 address (RFC 6052, 8215, 3056, 4380, 4291), which could be any."""
PRIVATE = tuple(
    ip_network(each) for each in ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7")
)
"""This machine and private networks (RFC 1122, 1918, 4291, 4193): what the setting allows. Link-local addresses, where
clouds keep credentials, are not among them."""
CLOUD_METADATA = ip_address("fd00:ec2::254")
"""One that is not link-local."""


class AddressRefused(Exception):
    """The message says why, in one sentence without what was looked up."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL names. path: with its query."""

    secure: bool
    host: str
    port: int
    path: str


def parse(url: str) -> Target:
    """Raises AddressRefused for anything but a plain http or https URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AddressRefused("This is not a URL.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or not url.isprintable():
        raise AddressRefused("The address must be an http or https URL.")
    if parts.username is not None or parts.password is not None or " " in url:
        raise AddressRefused("The URL must have no user name, password or spaces.")
    secure = parts.scheme == "https"
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return Target(secure, parts.hostname, port or (443 if secure else 80), path)


def resolve(target: Target) -> str:
    """The one address to connect to. Raises AddressRefused where the name has none, or one that is not public."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise AddressRefused("The host's name cannot be looked up.") from None
    addresses = [str(each[4][0]) for each in found]
    if not addresses or not all(may_be_called(address) for address in addresses):
        raise AddressRefused("The host's address is not public.")
    return addresses[0]


def check_literal(target: Target) -> None:
    """Raises AddressRefused where the URL itself says that it leads to no address that may be called. Asks nobody."""
    address = _literal(target.host)
    if address is not None and not may_be_called(address):
        raise AddressRefused(
            f"Nothing would ever be sent to {target.host}: only public addresses are called. On a machine for "
            "development, PAGODA_UNSAFE_WEBHOOKS_TO_PRIVATE_ADDRESSES=1 allows private ones."
        )


def may_be_called(text: str) -> bool:
    """Whether this server connects to an address."""
    return is_public(text) or (settings.PAGODA_UNSAFE_WEBHOOKS_TO_PRIVATE_ADDRESSES and _is_private(text))


def _literal(host: str) -> str | None:
    """The address that a host is or always stands for (RFC 6761); None for other names."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return "127.0.0.1"
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(name))  # 0x7f.1 and 2130706433, as the system's look-up reads them
    except OSError:
        return None


def _is_private(text: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return address != CLOUD_METADATA and any(address in network for network in PRIVATE)


def is_public(text: str) -> bool:
    """Neither private, loopback, link-local (cloud metadata), multicast, reserved nor a disguise of such an address."""
    try:
        address: IPv4Address | IPv6Address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(str(address.ipv4_mapped))
        if any(address in network for network in TRANSLATED) or address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved
