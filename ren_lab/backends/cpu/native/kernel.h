/* What a rendered kernel sees: residues modulo p in [0, p), and how its parts are run. */
#ifndef REN_KERNEL_H
#define REN_KERNEL_H

#include "words.h"

/* a + b, a - b, -a and the Montgomery product a * b / 2^32, modulo p in [0, p). */
INLINE word add(word a, word b, word p) { return from_twice(plus(a, b), p); }
INLINE word sub(word a, word b, word p) { return from_signed(minus(a, b), p); }
INLINE word neg(word a, word p) { return from_signed(minus(splat(0), a), p); }
INLINE word mul(word a, word b, word p, word p_inv) { return from_signed(product_lazy(a, b, p, p_inv), p); }
INLINE word scale(word a, word c, word p, word p_inv) { return from_signed(product_by(a, c, p, p_inv), p); } /* c: a splat */

/* A sum of products below 2^(32 + bits) * p, back below 2^32 * p: only high halves are touched. */
INLINE u64 folded1(u64 sum, u32 p, i64 bits)
{
    for (i64 s = bits - 1; s >= 0; s--) {
        const u64 multiple = (u64)p << (32 + s);
        sum = sum >= multiple ? sum - multiple : sum;
    }
    return sum;
}

INLINE u32 redc1(u64 t, u32 p, u32 p_inv) /* t / 2^32 mod p in [0, p), for t < 2^32 * p */
{
    const u32 raw = (u32)(t >> 32) - (u32)((u64)((u32)t * p_inv) * p >> 32);
    return least1(raw, raw + p);
}

/* Sums of products of residues, 64 bits each: lanes 0, 2, … and 1, 3, … of a word. How many terms fit is the renderer's care. */
#if HAS_WIDE
typedef struct {
    wide even, odds;
} sums;

INLINE sums products(word a, word b) { return (sums){times(a, b), times(odd(a), odd(b))}; }

INLINE sums more_products(sums s, word a, word b)
{
    return (sums){plus_wide(s.even, times(a, b)), plus_wide(s.odds, times(odd(a), odd(b)))};
}

/* From below 2^(32 + bits) * p to below 2^32 * p: only the high halves are touched. */
INLINE sums folded_sums(sums s, word p, i64 bits)
{
    for (i64 i = bits - 1; i >= 0; i--) {
        wide multiple = up(p);
        for (i64 k = 0; k < i; k++)
            multiple = plus_wide(multiple, multiple);
        s.even = least(s.even, minus_wide(s.even, multiple));
        s.odds = least(s.odds, minus_wide(s.odds, multiple));
    }
    return s;
}

/* s / 2^32 mod p in [0, p); needs s < 2^32 * p. */
INLINE word reduced_sums(sums s, word p, word p_inv)
{
    const wide even_m = times(s.even, p_inv), odds_m = times(s.odds, p_inv);
    return from_signed(high_halves(minus_wide(s.even, times(even_m, p)), minus_wide(s.odds, times(odds_m, p))), p);
}
#else
typedef u64 sums;

INLINE sums products(word a, word b) { return (u64)a * b; }
INLINE sums more_products(sums s, word a, word b) { return s + (u64)a * b; }

INLINE sums folded_sums(sums s, word p, i64 bits) { return folded1(s, p, bits); }
INLINE word reduced_sums(sums s, word p, word p_inv) { return redc1(s, p, p_inv); }
#endif

/* The constants of a transform of one limb. */
typedef struct {
    i64 n;
    u32 p, p_inv;
    u32 n_inv, psi1_n_inv;  /* of the inverse: n^-1 and psi^-brv(1) * n^-1, in Montgomery form */
    const u32 *psi;         /* u32[n]: psi^brv(i), or psi^-brv(i) of the inverse, in Montgomery form */
} ren_transform;

typedef struct ren_call ren_call;
typedef void ren_part(const ren_call *call, i64 item);

typedef struct {
    /* part(call, 0 .. count - 1), in any order, in several threads; all together about `cost` word operations. */
    void (*run)(ren_part *part, const ren_call *call, i64 count, i64 cost);
    /* The transform of the row `in`, which may be `row` itself; values in [0, p). */
    void (*ntt)(u32 *row, const u32 *in, const ren_transform *constants);
    void (*intt)(u32 *row, const u32 *in, const ren_transform *constants);
    /* y[terms] = (sum over i of ((y[i] * weight[i]) >> 31), plus 2^31 + terms) >> 32, for rows of `width` words. */
    void (*estimate)(u32 *y, i64 terms, i64 width, const u64 *weight);
    /* out[r] = sum over i of y[i] * factor[r][i] / 2^32 mod p[r], in [0, p[r]), for up to 4 rows of `width` words. */
    void (*combine)(u32 *out, i64 out_stride, const u32 *y, i64 y_stride, i64 terms, i64 width, i64 rows, const u32 *factor,
                    const u32 *p, const u32 *p_inv, i64 terms_per_fold, i64 fold_bits);
    /* Room for so many words, of the running thread alone, until it asks again. */
    u32 *(*scratch)(i64 words);
} ren_runtime;

struct ren_call {
    const ren_runtime *rt;
    u32 *const *slot;         /* the buffers: the output, the inputs, temporaries */
    const void *const *table; /* constants that are arrays */
    const i64 *number;        /* constants that are numbers */
};

INLINE const u32 *words_of(const ren_call *k, int i) { return (const u32 *)k->table[i]; }

#if defined(_WIN32)
#define EXPORT __declspec(dllexport) void
#else
#define EXPORT __attribute__((visibility("default"))) void
#endif

#endif
