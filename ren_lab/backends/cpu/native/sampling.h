/* Random residues, one by one: each is a function of a key, of the number of its draw and of its own index, of nothing else.
 *
 * Plain C that also compiles as CUDA: it needs u32, u64, i64, INLINE, least1 and product1 from whoever includes it, and nothing more.
 *
 * The stream is ChaCha20 (RFC 8439). The nonce is the number of the draw, low word first, and then a round: 0, or more for an index
 * whose number was refused before. A block has 64 bits for each of 8 indices, low word first. The blocks 16g to 16g + 15 serve the
 * indices 128g to 128g + 127, and neighbours stand in neighbouring blocks: whoever computes blocks side by side, in the lanes of a
 * vector or the threads of a warp, has neighbours side by side, and nothing to transpose.
 */
#ifndef REN_SAMPLING_H
#define REN_SAMPLING_H

enum {
    BLOCKS_ABREAST = 16, /* neighbouring indices that stand in as many blocks */
    PER_BLOCK = 8,       /* indices that a block serves */
    GROUP = 128          /* BLOCKS_ABREAST * PER_BLOCK */
};

INLINE u32 block_of(u64 index) { return (u32)(index / GROUP * BLOCKS_ABREAST + index % BLOCKS_ABREAST); }
INLINE int pair_of(u64 index) { return (int)(index % GROUP / BLOCKS_ABREAST); } /* which of the block's 8 pairs of words */

INLINE u32 rotated1(u32 x, int by) { return x << by | x >> (32 - by); }

INLINE void quarter1(u32 *a, u32 *b, u32 *c, u32 *d)
{
    *a += *b, *d = rotated1(*d ^ *a, 16);
    *c += *d, *b = rotated1(*b ^ *c, 12);
    *a += *b, *d = rotated1(*d ^ *a, 8);
    *c += *d, *b = rotated1(*b ^ *c, 7);
}

/* The 16 words of a block of the key stream; `key` has 8 words. */
INLINE void chacha_block1(u32 *x, const u32 *key, u32 block, u64 draw, u32 round)
{
    const u32 start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1], key[2], key[3], key[4], key[5], key[6],
                           key[7], block, (u32)draw, (u32)(draw >> 32), round};
    for (int i = 0; i < 16; i++)
        x[i] = start[i];
    for (int i = 0; i < 10; i++) {
        quarter1(x, x + 4, x + 8, x + 12);
        quarter1(x + 1, x + 5, x + 9, x + 13);
        quarter1(x + 2, x + 6, x + 10, x + 14);
        quarter1(x + 3, x + 7, x + 11, x + 15);
        quarter1(x, x + 5, x + 10, x + 15);
        quarter1(x + 1, x + 6, x + 11, x + 12);
        quarter1(x + 2, x + 7, x + 8, x + 13);
        quarter1(x + 3, x + 4, x + 9, x + 14);
    }
    for (int i = 0; i < 16; i++)
        x[i] += start[i];
}

/* The high part of x * bound / 2^64, for the 64 bits x = (low, high) and 1 < bound < 2^32. Gives 0 where x is refused, which
 * leaves floor(2^64 / bound) of them for each result (Lemire, 2019): the low part is below 2^64 mod bound. That happens
 * with probability below bound / 2^64. */
INLINE int below1(u32 *out, u32 low, u32 high, u32 bound)
{
    const u64 lower = (u64)low * bound, upper = (u64)high * bound + (lower >> 32);
    *out = (u32)(upper >> 32);
    return (u32)upper != 0 || (u32)lower >= (0 - (u64)bound) % bound;
}

/* Uniform on [0, bound): the number of an index, in the first round from `round` on in which it is not refused. */
INLINE u32 below_at1(const u32 *key, u64 draw, u64 index, u32 round, u32 bound)
{
    const int pair = 2 * pair_of(index);
    u32 value, words[16];
    do
        chacha_block1(words, key, block_of(index), draw, round++);
    while (!below1(&value, words[pair], words[pair + 1], bound));
    return value;
}

/* How many of the ascending thresholds are not above the 64 bits x. Up to ALL_READ of them are all read, whatever x is; of more,
 * those that a search by halves asks for. */
enum { ALL_READ = 256 };

INLINE u32 reached1(u64 x, const u64 *threshold, i64 count)
{
    u32 found = 0;
    if (count <= ALL_READ) {
        for (i64 i = 0; i < count; i++)
            found += threshold[i] <= x;
    } else {
        i64 first = 0;
        while (count > 0) { /* thresholds before `first` are reached, those from first + count on are not */
            const i64 half = count / 2;
            const int more = threshold[first + half] <= x;
            first += more ? half + 1 : 0;
            count = more ? count - half - 1 : half;
        }
        found = (u32)first;
    }
    return found;
}

/* The number of an index in a draw by thresholds; nothing is refused. */
INLINE u32 reached_at1(const u32 *key, u64 draw, u64 index, const u64 *threshold, i64 count)
{
    const int pair = 2 * pair_of(index);
    u32 words[16];
    chacha_block1(words, key, block_of(index), draw, 0);
    return reached1((u64)words[pair + 1] << 32 | words[pair], threshold, count);
}

/* What a small number becomes modulo p: (value - centre) * 2^32 in [0, p), for `square` = 2^64 mod p and `centred` = centre * 2^32
 * mod p. */
INLINE u32 residue1(u32 value, u32 square, u32 centred, u32 p, u32 p_inv)
{
    const u32 raw = product1(value, square, p, p_inv), shifted = least1(raw, raw + p) - centred;
    return least1(shifted, shifted + p);
}

#endif
