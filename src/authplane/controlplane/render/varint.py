"""Numbers as protobuf writes them."""


def varint(number: int) -> bytes:
    """Write a number: seven bits a byte, the lowest first."""
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)
