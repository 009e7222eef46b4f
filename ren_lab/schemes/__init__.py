"""Encryption schemes written in terms of lazy polynomials."""
