"""ChaCha20 and the samplers' definition in plain integers, index by index: what every device must draw."""

import struct
from functools import cache


@cache
def block(key: bytes, counter: int, nonce: bytes) -> tuple[int, ...]:
    """The 16 words of a block of the key stream (RFC 8439, section 2.3)."""
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter, *struct.unpack("<3I", nonce)]
    state = list(start)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) % 2**32
            mixed = state[z] ^ state[x]
            state[z] = (mixed << turn | mixed >> 32 - turn) % 2**32

    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return tuple([(a + b) % 2**32 for a, b in zip(state, start)])


def bits(key: bytes, number: int, index: int, round: int = 0) -> int:
    """The 64 bits of an index: of its group of 128, the 16 indices of each run of neighbours are in 16 blocks."""
    group, place = divmod(index, 128)
    run, lane = divmod(place, 16)
    words = block(key, 16 * group + lane, struct.pack("<QI", number, round))
    return words[2 * run] + (words[2 * run + 1] << 32)


def below(bound: int, key: bytes, number: int, index: int) -> int:
    """Uniform on [0, bound): the first round whose x is among the floor(2^64 / bound) * bound that are kept."""
    round = 0
    while (x := bits(key, number, index, round)) * bound % 2**64 < 2**64 % bound:
        round += 1
    return x * bound // 2**64
