"""CKKS: approximate arithmetic on encrypted vectors of complex numbers, written in lazy polynomials alone.

from ren_lab.schemes.ckks import CKKSParams, decode, decrypt, encode, encrypt, keygen

ctx = keygen(CKKSParams.python_test())
with ctx:
    x = encrypt(encode([0.5, -0.25], msg_bound=1.0))
    decode(decrypt(2 * x * x - 1), length=2)

Values at level l stand multiplied by a scale S_l in the polynomial b + a*s; a product has scale S_l^2 and is divided by
the primes q_l of the level, which takes it to level l - 1 and scale S_{l-1} = S_l^2 / q_l. Levels and scales are managed
for the user.
"""

from ren_lab.schemes.ckks.ckks import Ciphertext, decrypt, encrypt
from ren_lab.schemes.ckks.keys import CKKSContext, context, keygen
from ren_lab.schemes.ckks.params import CKKSParams
from ren_lab.schemes.ckks.plaintext import Plaintext, decode, encode

__all__ = [
    "CKKSContext", "CKKSParams", "Ciphertext", "Plaintext", "context", "decode", "decrypt", "encode", "encrypt", "keygen",
]  # fmt: skip
