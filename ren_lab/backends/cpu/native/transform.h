/* The negacyclic transforms of one row, from one place to another or in place, in the order of Longa and Naehrig (2016): the block i of m has the factor
 * psi[m + i].
 *
 * Lazy arithmetic (after Harvey, 2014) for p < 2^30: the forward direction keeps values in [0, 4p), the inverse in [0, 2p).
 * Otherwise, up to 2^31, values are kept in [0, 2p) and [0, p).
 *
 * Two stages at a time (radix 4); rows longer than BLOCK are worked on block by block once a stage stays within a block, and
 * the last stages, whose pairs stand within a word, exchange one bit of the position for the choice between two words.
 */
#include <string.h>

#include "kernel.h"

enum { BLOCK = 8192 }; /* words that fit into the first-level cache together with their factors */

#define LAZY_LIMIT (1u << 30)

typedef struct {
    word p, p2, p_inv;
} modulus_words;

INLINE modulus_words modulus_of(const ren_transform *t)
{
    return (modulus_words){splat(t->p), splat(2 * t->p), splat(t->p_inv)};
}

/* (x + w*y, x - w*y). */
INLINE void forward_butterfly(word *x, word *y, word w, modulus_words q, int lazy, int both)
{
    const word t = product_(*y, w, q.p, q.p_inv, both);
    if (lazy) { /* from [0, 4p) to (0, 4p): x in [0, 2p), t in (-p, p) */
        const word a = plus(least(*x, minus(*x, q.p2)), q.p);
        *x = plus(a, t);
        *y = minus(a, t);
    } else { /* from [0, 2p) to [0, 2p) */
        const word a = from_twice(*x, q.p), b = from_signed(t, q.p);
        *x = plus(a, b);
        *y = plus(minus(a, b), q.p);
    }
}

/* (x + y, (x - y) * w). */
INLINE void inverse_butterfly(word *x, word *y, word w, modulus_words q, int lazy, int both)
{
    const word a = *x, b = *y, s = plus(a, b);
    if (lazy) { /* from [0, 2p) to [0, 2p); the difference is in (0, 4p) */
        *x = least(s, minus(s, q.p2));
        *y = plus(product_(plus(minus(a, b), q.p2), w, q.p, q.p_inv, both), q.p);
    } else {
        *x = from_twice(s, q.p);
        *y = from_signed(product_(plus(minus(a, b), q.p), w, q.p, q.p_inv, both), q.p);
    }
}

/* The last stage of the inverse with the factor 1/n: ((x + y) * f, (x - y) * w), in [0, p). */
INLINE void last_butterfly(word *x, word *y, word f, word w, modulus_words q, int lazy)
{
    const word a = *x, b = *y;
    *x = from_signed(product_by(plus(a, b), f, q.p, q.p_inv), q.p);
    *y = from_signed(product_by(plus(minus(a, b), lazy ? q.p2 : q.p), w, q.p, q.p_inv), q.p);
}

INLINE word reduced(word x, modulus_words q, int lazy)
{
    if (lazy)
        x = least(x, minus(x, q.p2));
    return from_twice(x, q.p);
}

/* Two stages on `blocks` blocks of 4*step words of `in`, which may be `x`; the factors of the first are psi[root + i]. */
INLINE void forward_pass(u32 *x, const u32 *in, i64 blocks, i64 step, i64 root, const u32 *psi, modulus_words q, int lazy)
{
    for (i64 i = 0; i < blocks; i++, x += 4 * step, in += 4 * step) {
        const word w1 = splat(psi[root + i]), w2 = splat(psi[2 * (root + i)]), w3 = splat(psi[2 * (root + i) + 1]);
        for (i64 c = 0; c < step; c += LANES) {
            word a = load(in + c), b = load(in + c + step), d = load(in + c + 2 * step), e = load(in + c + 3 * step);
            forward_butterfly(&a, &d, w1, q, lazy, 1);
            forward_butterfly(&b, &e, w1, q, lazy, 1);
            forward_butterfly(&a, &b, w2, q, lazy, 1);
            forward_butterfly(&d, &e, w3, q, lazy, 1);
            store(x + c, a);
            store(x + c + step, b);
            store(x + c + 2 * step, d);
            store(x + c + 3 * step, e);
        }
    }
}

INLINE void inverse_pass(u32 *x, i64 blocks, i64 step, i64 root, const ren_transform *t, modulus_words q, int lazy)
{
    const u32 *psi = t->psi;
    for (i64 i = 0; i < blocks; i++, x += 4 * step) {
        const word w1 = splat(psi[root + i]), w2 = splat(psi[2 * (root + i)]), w3 = splat(psi[2 * (root + i) + 1]);
        for (i64 c = 0; c < step; c += LANES) {
            word a = load(x + c), b = load(x + c + step), d = load(x + c + 2 * step), e = load(x + c + 3 * step);
            inverse_butterfly(&a, &b, w2, q, lazy, 1);
            inverse_butterfly(&d, &e, w3, q, lazy, 1);
            inverse_butterfly(&a, &d, w1, q, lazy, 1);
            inverse_butterfly(&b, &e, w1, q, lazy, 1);
            store(x + c, a);
            store(x + c + step, b);
            store(x + c + 2 * step, d);
            store(x + c + 3 * step, e);
        }
    }
}

/* The last two stages of the inverse, on the whole row. */
INLINE void inverse_end(u32 *x, const ren_transform *t, modulus_words q, int lazy)
{
    const i64 step = t->n / 4;
    const word f = splat(t->n_inv), w1 = splat(t->psi1_n_inv), w2 = splat(t->psi[2]), w3 = splat(t->psi[3]);
    for (i64 c = 0; c < step; c += LANES) {
        word a = load(x + c), b = load(x + c + step), d = load(x + c + 2 * step), e = load(x + c + 3 * step);
        inverse_butterfly(&a, &b, w2, q, lazy, 1);
        inverse_butterfly(&d, &e, w3, q, lazy, 1);
        last_butterfly(&a, &d, f, w1, q, lazy);
        last_butterfly(&b, &e, f, w1, q, lazy);
        store(x + c, a);
        store(x + c + step, b);
        store(x + c + 2 * step, d);
        store(x + c + 3 * step, e);
    }
}

/* The stages within words, for `size` words whose first stage of all has the factor psi[root]. `pairs`: and the one before. */
INLINE void forward_tail(u32 *x, i64 size, i64 root, const u32 *psi, modulus_words q, int lazy, int pairs)
{
    for (i64 c = 0; c < size; c += 2 * LANES) {
        word a = load(x + c), b = load(x + c + LANES);
        if (pairs)
            forward_butterfly(&a, &b, splat(psi[root * (size / (2 * LANES)) + c / (2 * LANES)]), q, lazy, 1);
#if HAS_WIDE
#pragma GCC unroll 4
        for (int shift = LOG2_LANES - 1; shift >= 0; shift--) {
            swap_bit(&a, &b, shift);
            forward_butterfly(&a, &b, spread(psi + ((root * size + c) >> (shift + 1)), shift), q, lazy, shift > 0);
        }
        interleave(&a, &b);
#endif
        store(x + c, reduced(a, q, lazy));
        store(x + c + LANES, reduced(b, q, lazy));
    }
}

INLINE void inverse_tail(u32 *x, const u32 *in, i64 size, i64 root, const u32 *psi, modulus_words q, int lazy, int pairs)
{
    for (i64 c = 0; c < size; c += 2 * LANES) {
        word a = load(in + c), b = load(in + c + LANES);
#if HAS_WIDE
        deinterleave(&a, &b);
#pragma GCC unroll 4
        for (int shift = 0; shift < LOG2_LANES; shift++) {
            inverse_butterfly(&a, &b, spread(psi + ((root * size + c) >> (shift + 1)), shift), q, lazy, shift > 0);
            swap_bit(&a, &b, shift);
        }
#endif
        if (pairs)
            inverse_butterfly(&a, &b, splat(psi[root * (size / (2 * LANES)) + c / (2 * LANES)]), q, lazy, 1);
        store(x + c, a);
        store(x + c + LANES, b);
    }
}

INLINE int odd_stages(i64 size) /* whether log2(size / LANES) is odd */
{
    int stages = 0;
    while ((i64)LANES << stages < size)
        stages++;
    return stages & 1;
}

INLINE void forward_row(u32 *x, const u32 *in, const ren_transform *t, int lazy)
{
    const modulus_words q = modulus_of(t);
    i64 size = t->n, blocks = 1;
    for (; size > BLOCK; size /= 4, blocks *= 4, in = x)
        forward_pass(x, in, blocks, size / 4, blocks, t->psi, q, lazy);
    const int pairs = odd_stages(size);
    for (i64 i = 0; i < blocks; i++, x += size, in += size) {
        const i64 root = blocks + i;
        const u32 *from = in;
        i64 parts = 1, length = size;
        for (; length > (i64)LANES << pairs; length /= 4, parts *= 4, from = x)
            forward_pass(x, from, parts, length / 4, root * parts, t->psi, q, lazy);
        if (pairs)
            forward_tail(x, size, root, t->psi, q, lazy, 1);
        else
            forward_tail(x, size, root, t->psi, q, lazy, 0);
    }
}

INLINE void inverse_row(u32 *x, const u32 *in, const ren_transform *t, int lazy)
{
    const modulus_words q = modulus_of(t);
    i64 size = t->n, blocks = 1;
    for (; size > BLOCK; size /= 4)
        blocks *= 4;
    const int pairs = odd_stages(size);
    u32 *block = x;
    for (i64 i = 0; i < blocks; i++, block += size, in += size) {
        const i64 root = blocks + i;
        if (pairs)
            inverse_tail(block, in, size, root, t->psi, q, lazy, 1);
        else
            inverse_tail(block, in, size, root, t->psi, q, lazy, 0);
        i64 length = (i64)LANES << (2 + pairs);
        for (; length < size; length *= 4)
            inverse_pass(block, size / length, length / 4, root * (size / length), t, q, lazy);
        if (blocks > 1)
            inverse_pass(block, 1, size / 4, root, t, q, lazy);
    }
    for (blocks /= 4, size *= 4; size < t->n; size *= 4, blocks /= 4)
        inverse_pass(x, blocks, size / 4, blocks, t, q, lazy);
    inverse_end(x, t, q, lazy);
}

/* Rows too short for the above: radix 2, one residue at a time, values in [0, p). */
static void forward_short(u32 *x, const ren_transform *t)
{
    const u32 p = t->p;
    for (i64 m = 1; m < t->n; m *= 2)
        for (i64 i = 0, half = t->n / (2 * m); i < m; i++)
            for (i64 c = 2 * i * half; c < (2 * i + 1) * half; c++) {
                const u32 raw = product1(x[c + half], t->psi[m + i], p, t->p_inv), y = least1(raw, raw + p);
                const u32 sum = x[c] + y, difference = x[c] - y;
                x[c] = least1(sum, sum - p);
                x[c + half] = least1(difference, difference + p);
            }
}

static void inverse_short(u32 *x, const ren_transform *t)
{
    const u32 p = t->p;
    for (i64 m = t->n / 2; m > 0; m /= 2)
        for (i64 i = 0, half = t->n / (2 * m); i < m; i++)
            for (i64 c = 2 * i * half; c < (2 * i + 1) * half; c++) {
                const u32 sum = x[c] + x[c + half];
                const u32 raw = product1(x[c] + p - x[c + half], t->psi[m + i], p, t->p_inv);
                x[c] = least1(sum, sum - p);
                x[c + half] = least1(raw, raw + p);
            }
    for (i64 c = 0; c < t->n; c++) {
        const u32 raw = product1(x[c], t->n_inv, p, t->p_inv);
        x[c] = least1(raw, raw + p);
    }
}

static void lazy_forward(u32 *x, const u32 *in, const ren_transform *t) { forward_row(x, HAS_WIDE ? in : x, t, 1); }
static void strict_forward(u32 *x, const u32 *in, const ren_transform *t) { forward_row(x, HAS_WIDE ? in : x, t, 0); }
static void lazy_inverse(u32 *x, const u32 *in, const ren_transform *t) { inverse_row(x, HAS_WIDE ? in : x, t, 1); }
static void strict_inverse(u32 *x, const u32 *in, const ren_transform *t) { inverse_row(x, HAS_WIDE ? in : x, t, 0); }

/* The row to transform: a copy in `row` where it is short, and where the compiler vectorizes only what works in place. */
static const u32 *source(u32 *row, const u32 *in, i64 n)
{
    if (HAS_WIDE && n >= 4 * LANES)
        return in;
    if (in != row)
        memcpy(row, in, (size_t)n * sizeof *row);
    return row;
}

static void ntt(u32 *row, const u32 *in, const ren_transform *t)
{
    in = source(row, in, t->n);
    if (t->n < 4 * LANES)
        forward_short(row, t);
    else if (t->p < LAZY_LIMIT)
        lazy_forward(row, in, t);
    else
        strict_forward(row, in, t);
}

static void intt(u32 *row, const u32 *in, const ren_transform *t)
{
    in = source(row, in, t->n);
    if (t->n < 4 * LANES)
        inverse_short(row, t);
    else if (t->p < LAZY_LIMIT)
        lazy_inverse(row, in, t);
    else
        strict_inverse(row, in, t);
}
