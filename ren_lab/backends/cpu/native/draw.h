/* Random residues, a group of GROUP neighbours at a time: what sampling.h says, in words. */
#ifndef REN_DRAW_H
#define REN_DRAW_H

#include "kernel.h"
#include "sampling.h"

enum { UNIFORM, BELOW, REACHED }; /* residues on [0, p); numbers on [0, bound); numbers of thresholds reached */

/* A draw, from its key to its distribution. */
typedef struct {
    u32 key[8];
    u64 number;
    i64 n, limbs, kind;
    i64 bound;            /* of BELOW; of REACHED, how many thresholds there are */
    const u64 *threshold; /* of REACHED, ascending */
    const u32 *p, *p_inv, *square, *centred; /* u32[limbs] each: see residue1 */
} ren_draw;

enum { DRAW_PIECE = 8 * GROUP }; /* neighbours that are drawn together */

INLINE void quarter(word *a, word *b, word *c, word *d)
{
    *a = plus(*a, *b), *d = differ(*d, *a), *d = ROTATED(*d, 16);
    *c = plus(*c, *d), *b = differ(*b, *c), *b = ROTATED(*b, 12);
    *a = plus(*a, *b), *d = differ(*d, *a), *d = ROTATED(*d, 8);
    *c = plus(*c, *d), *b = differ(*b, *c), *b = ROTATED(*b, 7);
}

/* The words of LANES blocks from `block` on, in round 0: x[i] has the word i of each. */
INLINE void chacha_blocks(word *x, const ren_draw *d, u32 block)
{
    static const u32 lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const u32 *key = d->key;
    const u32 fixed[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1], key[2], key[3], key[4], key[5], key[6],
                           key[7], block, (u32)d->number, (u32)(d->number >> 32), 0};
    for (int i = 0; i < 16; i++)
        x[i] = splat(fixed[i]);
    x[12] = plus(x[12], load(lane));
    for (int i = 0; i < 10; i++) {
        quarter(x, x + 4, x + 8, x + 12);
        quarter(x + 1, x + 5, x + 9, x + 13);
        quarter(x + 2, x + 6, x + 10, x + 14);
        quarter(x + 3, x + 7, x + 11, x + 15);
        quarter(x, x + 5, x + 10, x + 15);
        quarter(x + 1, x + 6, x + 11, x + 12);
        quarter(x + 2, x + 7, x + 8, x + 13);
        quarter(x + 3, x + 4, x + 9, x + 14);
    }
    for (int i = 0; i < 16; i++)
        x[i] = plus(x[i], splat(fixed[i]));
    x[12] = plus(x[12], load(lane));
}

/* Uniform on [0, bound) for LANES neighbours from `index` on. */
INLINE void store_below(u32 *out, word low, word high, const ren_draw *d, u64 index, u32 bound)
{
#if HAS_WIDE
    const word b = splat(bound);
    const wide even = plus_wide(times(high, b), odd(times(low, b)));
    const wide odds = plus_wide(times(odd(high), b), odd(times(odd(low), b)));
    store(out, high_halves(even, odds));
    if (any_zero(high_halves(up(even), up(odds)))) /* perhaps one that is refused: once in 2^28 or more */
        for (int i = 0; i < LANES; i++)
            out[i] = below_at1(d->key, d->number, index + (u64)i, 0, bound);
#else
    if (!below1(out, low, high, bound))
        *out = below_at1(d->key, d->number, index, 1, bound);
#endif
}

/* How many thresholds are not above (low, high), for LANES neighbours. */
INLINE void store_reached(u32 *out, word low, word high, const u64 *threshold, i64 count)
{
#if HAS_WIDE
    if (count <= ALL_READ) {
        swap_bit(&low, &high, 0); /* now the 64 bits of the even lanes, and those of the odd ones */
        wide even = splat_wide((u64)count), odds = even;
        for (i64 i = 0; i < count; i++) {
            const wide t = splat_wide(threshold[i]);
            even = less_above(even, t, low);
            odds = less_above(odds, t, high);
        }
        store(out, high_halves(up(even), up(odds)));
        return;
    }
#endif
    u32 lows[LANES], highs[LANES];
    store(lows, low);
    store(highs, high);
    for (int i = 0; i < LANES; i++)
        out[i] = reached1((u64)highs[i] << 32 | lows[i], threshold, count);
}

/* The numbers of `count` indices from `index` on; whole groups are written, so `out` has room for them. */
static void draw_numbers(u32 *out, const ren_draw *d, u64 index, i64 count, u32 bound)
{
    for (i64 at = 0; at < count; at += GROUP, index += GROUP)
        for (int lane = 0; lane < BLOCKS_ABREAST; lane += LANES) {
            word x[16];
            chacha_blocks(x, d, block_of(index) + (u32)lane);
            for (int k = 0; k < PER_BLOCK; k++) {
                const int to = k * BLOCKS_ABREAST + lane;
                if (d->kind == REACHED)
                    store_reached(out + at + to, x[2 * k], x[2 * k + 1], d->threshold, d->bound);
                else
                    store_below(out + at + to, x[2 * k], x[2 * k + 1], d, index + (u64)to, bound);
            }
        }
}

/* Uniform residues: a piece of the whole array, that begins at a group. Rows are shorter than groups, or made of them. */
static void draw_uniform(const ren_call *k, i64 item)
{
    const ren_draw *d = (const ren_draw *)k->table[0];
    const i64 total = d->n * d->limbs, begin = item * DRAW_PIECE, end = total - begin < DRAW_PIECE ? total : begin + DRAW_PIECE;
    u32 *out = k->slot[0];
    if (d->n < GROUP) {
        for (i64 i = begin; i < end; i++)
            out[i] = below_at1(d->key, d->number, (u64)i, 0, d->p[i / d->n]);
        return;
    }
    for (i64 i = begin, length; i < end; i += length) {
        const i64 row_end = (i / d->n + 1) * d->n;
        length = (row_end < end ? row_end : end) - i;
        draw_numbers(out + i, d, (u64)i, length, d->p[i / d->n]);
    }
}

/* Small numbers: a block of columns, drawn once, and reduced modulo each p. */
static void draw_small(const ren_call *k, i64 item)
{
    const ren_draw *d = (const ren_draw *)k->table[0];
    const i64 begin = item * DRAW_PIECE, width = d->n - begin < DRAW_PIECE ? d->n - begin : DRAW_PIECE;
    u32 numbers[DRAW_PIECE];
    draw_numbers(numbers, d, (u64)begin, width, (u32)d->bound);
    for (i64 j = 0; j < d->limbs; j++) {
        u32 *row = k->slot[0] + j * d->n + begin;
        const word p = splat(d->p[j]), p_inv = splat(d->p_inv[j]), square = splat(d->square[j]), centred = splat(d->centred[j]);
        i64 c = 0;
        for (; c + LANES <= width; c += LANES)
            store(row + c, sub(scale(load(numbers + c), square, p, p_inv), centred, p));
        for (; c < width; c++)
            row[c] = residue1(numbers[c], d->square[j], d->centred[j], d->p[j], d->p_inv[j]);
    }
}

/* A whole draw, into u32[limbs, n]. */
static void draw(u32 *out, const ren_draw *d, const ren_runtime *rt)
{
    u32 *const slot[1] = {out};
    const void *const table[1] = {d};
    const ren_call call = {rt, slot, table, 0};
    if (d->kind == UNIFORM)
        rt->run(draw_uniform, &call, (d->n * d->limbs + DRAW_PIECE - 1) / DRAW_PIECE, 16 * d->n * d->limbs);
    else
        rt->run(draw_small, &call, (d->n + DRAW_PIECE - 1) / DRAW_PIECE, d->n * (16 + (d->kind == REACHED ? d->bound : 0) + 2 * d->limbs));
}

#endif
