/* A `word` is LANES residues of 32 bits side by side: 16 with AVX-512, 8 with AVX2, 4 with NEON (64-bit ARM), 1
 * without any of them (or with REN_SCALAR).
 *
 * `gather` reads through the index map of automorphisms, which takes aligned blocks of 2^k values to such blocks: positions that
 * agree but for their k lowest bits hold values at exponents that agree modulo 2n/2^k, and so do those times g. So the places of a
 * word are the lanes of one word, in another order.
 *
 * Everything that is computed with words is written once, for all widths. Residues are unsigned; a negative number stands for
 * itself plus 2^32. Montgomery's radix is 2^32; `p_inv` is p^-1 modulo 2^32.
 */
#ifndef REN_WORDS_H
#define REN_WORDS_H

#include <stdint.h>

typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;

#define INLINE static inline __attribute__((always_inline, unused))

/* One residue. */

INLINE u32 least1(u32 a, u32 b) { return a < b ? a : b; }

/* a * b / 2^32 mod p in (-p, p); needs a * b < 2^32 * p. */
INLINE u32 product1(u32 a, u32 b, u32 p, u32 p_inv)
{
    const u64 t = (u64)a * b;
    const u32 m = (u32)t * p_inv;
    return (u32)(t >> 32) - (u32)((u64)m * p >> 32);
}

#if defined(__AVX512F__) && !defined(REN_SCALAR)

#include <immintrin.h>

enum { LANES = 16, LOG2_LANES = 4 };
typedef __m512i word;
typedef __m512i wide; /* 8 numbers of 64 bits */
#define HAS_WIDE 1

INLINE word load(const u32 *a) { return _mm512_loadu_si512(a); }
INLINE void store(u32 *a, word x) { _mm512_storeu_si512(a, x); }
INLINE word splat(u32 x) { return _mm512_set1_epi32((int)x); }
INLINE word gather(const u32 *a, const u32 *at) { return _mm512_permutexvar_epi32(load(at), load(a + (*at & ~15u))); }
INLINE word plus(word a, word b) { return _mm512_add_epi32(a, b); }
INLINE word minus(word a, word b) { return _mm512_sub_epi32(a, b); }
INLINE word least(word a, word b) { return _mm512_min_epu32(a, b); }
INLINE word differ(word a, word b) { return _mm512_xor_si512(a, b); }
#define ROTATED(a, by) _mm512_rol_epi32(a, by) /* to the left, by a constant */
INLINE int any_zero(word a) { return _mm512_testn_epi32_mask(a, a) != 0; }

/* x at coefficient `at`, zero elsewhere, where the word stands for the coefficients from c on. */
INLINE word impulse(i64 c, i64 at, u32 x)
{
    return c <= at && at < c + LANES ? _mm512_maskz_set1_epi32((__mmask16)(1u << (at - c)), (int)x) : splat(0);
}

INLINE wide splat_wide(u64 x) { return _mm512_set1_epi64((i64)x); }
INLINE wide plus_wide(wide a, wide b) { return _mm512_add_epi64(a, b); }
INLINE wide minus_wide(wide a, wide b) { return _mm512_sub_epi64(a, b); }
INLINE wide odd(word a) { return _mm512_srli_epi64(a, 32); } /* its odd lanes, for `times` */
INLINE wide up(wide a) { return _mm512_slli_epi64(a, 32); }
INLINE wide down31(wide a) { return _mm512_srli_epi64(a, 31); }
/* `sum` less one where a > b. */
INLINE wide less_above(wide sum, wide a, wide b)
{
    return _mm512_mask_sub_epi64(sum, _mm512_cmpgt_epu64_mask(a, b), sum, splat_wide(1));
}
INLINE wide times(wide a, wide b) { return _mm512_mul_epu32(a, b); } /* of the low halves */
/* The high halves of two wides, lane by lane in turn. */
INLINE word high_halves(wide even, wide odds)
{
    return _mm512_mask_shuffle_epi32(odds, 0x5555, even, _MM_PERM_DDBB);
}

/* `factors[lane >> shift]` in each lane. */
INLINE word spread(const u32 *factors, int shift)
{
    if (shift == 3)
        return _mm512_inserti64x4(splat(factors[0]), _mm256_set1_epi32((int)factors[1]), 1);
    if (shift == 2)
        return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                                        _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)factors)));
    if (shift == 1)
        return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                                        _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)factors)));
    return load(factors);
}

/* Two words hold 2*LANES residues; a position is (which word, lane). `swap_bit` exchanges the choice of the word with bit `bit`
 * of the lane; `interleave` takes x0 y0 x1 y1 ... out of x and y, `deinterleave` puts even positions into x, odd ones into y. */
INLINE void choose(word *x, word *y, word at_x, word at_y)
{
    const word a = *x, b = *y;
    *x = _mm512_permutex2var_epi32(a, at_x, b);
    *y = _mm512_permutex2var_epi32(a, at_y, b);
}

INLINE void swap_bit(word *x, word *y, int bit)
{
    if (bit == 3)
        choose(x, y, _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
               _mm512_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
    else if (bit == 2)
        choose(x, y, _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
               _mm512_setr_epi32(4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31));
    else if (bit == 1)
        choose(x, y, _mm512_setr_epi32(0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
               _mm512_setr_epi32(2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
    else
        choose(x, y, _mm512_setr_epi32(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
               _mm512_setr_epi32(1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31));
}

INLINE void interleave(word *x, word *y)
{
    choose(x, y, _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
           _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
}

INLINE void deinterleave(word *x, word *y)
{
    choose(x, y, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
           _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31));
}

#elif defined(__AVX2__) && !defined(REN_SCALAR)

#include <immintrin.h>

enum { LANES = 8, LOG2_LANES = 3 };
typedef __m256i word;
typedef __m256i wide; /* 4 numbers of 64 bits */
#define HAS_WIDE 1

INLINE word load(const u32 *a) { return _mm256_loadu_si256((const __m256i *)a); }
INLINE void store(u32 *a, word x) { _mm256_storeu_si256((__m256i *)a, x); }
INLINE word splat(u32 x) { return _mm256_set1_epi32((int)x); }
INLINE word gather(const u32 *a, const u32 *at) { return _mm256_permutevar8x32_epi32(load(a + (*at & ~7u)), load(at)); }
INLINE word plus(word a, word b) { return _mm256_add_epi32(a, b); }
INLINE word minus(word a, word b) { return _mm256_sub_epi32(a, b); }
INLINE word least(word a, word b) { return _mm256_min_epu32(a, b); }
INLINE word differ(word a, word b) { return _mm256_xor_si256(a, b); }
#define ROTATED(a, by) _mm256_or_si256(_mm256_slli_epi32(a, by), _mm256_srli_epi32(a, 32 - (by)))
INLINE int any_zero(word a) { return _mm256_movemask_epi8(_mm256_cmpeq_epi32(a, _mm256_setzero_si256())) != 0; }

INLINE word impulse(i64 c, i64 at, u32 x)
{
    u32 lanes[8] = {0};
    if (c <= at && at < c + LANES)
        lanes[at - c] = x;
    return load(lanes);
}

INLINE wide splat_wide(u64 x) { return _mm256_set1_epi64x((i64)x); }
INLINE wide plus_wide(wide a, wide b) { return _mm256_add_epi64(a, b); }
INLINE wide minus_wide(wide a, wide b) { return _mm256_sub_epi64(a, b); }
INLINE wide odd(word a) { return _mm256_srli_epi64(a, 32); }
INLINE wide up(wide a) { return _mm256_slli_epi64(a, 32); }
INLINE wide down31(wide a) { return _mm256_srli_epi64(a, 31); }
INLINE wide less_above(wide sum, wide a, wide b)
{
    const wide top = splat_wide(1ull << 63);
    return plus_wide(sum, _mm256_cmpgt_epi64(_mm256_xor_si256(a, top), _mm256_xor_si256(b, top)));
}
INLINE wide times(wide a, wide b) { return _mm256_mul_epu32(a, b); }
INLINE word high_halves(wide even, wide odds) { return _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odds, 0xAA); }

INLINE word spread(const u32 *factors, int shift)
{
    if (shift == 2)
        return _mm256_inserti128_si256(splat(factors[0]), _mm_set1_epi32((int)factors[1]), 1);
    if (shift == 1)
        return _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)factors)),
                                           _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    return load(factors);
}

INLINE void swap_bit(word *x, word *y, int bit)
{
    const word a = *x, b = *y;
    if (bit == 2) {
        *x = _mm256_permute2x128_si256(a, b, 0x20);
        *y = _mm256_permute2x128_si256(a, b, 0x31);
    } else if (bit == 1) {
        *x = _mm256_unpacklo_epi64(a, b);
        *y = _mm256_unpackhi_epi64(a, b);
    } else {
        *x = _mm256_blend_epi32(a, _mm256_slli_epi64(b, 32), 0xAA);
        *y = _mm256_blend_epi32(_mm256_srli_epi64(a, 32), b, 0xAA);
    }
}

INLINE void interleave(word *x, word *y)
{
    const word low = _mm256_unpacklo_epi32(*x, *y), high = _mm256_unpackhi_epi32(*x, *y);
    *x = _mm256_permute2x128_si256(low, high, 0x20);
    *y = _mm256_permute2x128_si256(low, high, 0x31);
}

INLINE void deinterleave(word *x, word *y)
{
    const __m256 a = _mm256_castsi256_ps(*x), b = _mm256_castsi256_ps(*y);
    *x = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)), 0xD8);
    *y = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD)), 0xD8);
}

#elif defined(__AARCH64EL__) && defined(__ARM_NEON) && !defined(REN_SCALAR)

#include <arm_neon.h>

enum { LANES = 4, LOG2_LANES = 2 };
typedef uint32x4_t word;
typedef uint32x4_t wide; /* 2 numbers of 64 bits */
#define HAS_WIDE 1
#define HALVES(a) vreinterpretq_u64_u32(a)
#define WHOLE(a) vreinterpretq_u32_u64(a)

INLINE word load(const u32 *a) { return vld1q_u32(a); }
INLINE void store(u32 *a, word x) { vst1q_u32(a, x); }
INLINE word splat(u32 x) { return vdupq_n_u32(x); }
INLINE word gather(const u32 *a, const u32 *at)
{
    const u32 lanes[4] = {a[at[0]], a[at[1]], a[at[2]], a[at[3]]};
    return load(lanes);
}
INLINE word plus(word a, word b) { return vaddq_u32(a, b); }
INLINE word minus(word a, word b) { return vsubq_u32(a, b); }
INLINE word least(word a, word b) { return vminq_u32(a, b); }
INLINE word differ(word a, word b) { return veorq_u32(a, b); }
#define ROTATED(a, by) vsriq_n_u32(vshlq_n_u32(a, by), a, 32 - (by))
INLINE int any_zero(word a) { return vminvq_u32(a) == 0; }

INLINE word impulse(i64 c, i64 at, u32 x)
{
    u32 lanes[4] = {0};
    if (c <= at && at < c + LANES)
        lanes[at - c] = x;
    return load(lanes);
}

INLINE wide splat_wide(u64 x) { return WHOLE(vdupq_n_u64(x)); }
INLINE wide plus_wide(wide a, wide b) { return WHOLE(vaddq_u64(HALVES(a), HALVES(b))); }
INLINE wide minus_wide(wide a, wide b) { return WHOLE(vsubq_u64(HALVES(a), HALVES(b))); }
INLINE wide odd(word a) { return WHOLE(vshrq_n_u64(HALVES(a), 32)); }
INLINE wide up(wide a) { return WHOLE(vshlq_n_u64(HALVES(a), 32)); }
INLINE wide down31(wide a) { return WHOLE(vshrq_n_u64(HALVES(a), 31)); }
INLINE wide less_above(wide sum, wide a, wide b) { return plus_wide(sum, WHOLE(vcgtq_u64(HALVES(a), HALVES(b)))); }
INLINE wide times(wide a, wide b) { return WHOLE(vmull_u32(vmovn_u64(HALVES(a)), vmovn_u64(HALVES(b)))); }
INLINE word high_halves(wide even, wide odds) { return vtrn2q_u32(even, odds); }

INLINE word spread(const u32 *factors, int shift)
{
    if (shift == 1) {
        const uint32x2_t two = vld1_u32(factors);
        return vcombine_u32(vdup_lane_u32(two, 0), vdup_lane_u32(two, 1));
    }
    return load(factors);
}

INLINE void swap_bit(word *x, word *y, int bit)
{
    const word a = *x, b = *y;
    if (bit == 1) {
        *x = WHOLE(vzip1q_u64(HALVES(a), HALVES(b)));
        *y = WHOLE(vzip2q_u64(HALVES(a), HALVES(b)));
    } else {
        *x = vtrn1q_u32(a, b);
        *y = vtrn2q_u32(a, b);
    }
}

INLINE void interleave(word *x, word *y)
{
    const word a = *x, b = *y;
    *x = vzip1q_u32(a, b);
    *y = vzip2q_u32(a, b);
}

INLINE void deinterleave(word *x, word *y)
{
    const word a = *x, b = *y;
    *x = vuzp1q_u32(a, b);
    *y = vuzp2q_u32(a, b);
}

#else

enum { LANES = 1, LOG2_LANES = 0 };
typedef u32 word;
#define HAS_WIDE 0

INLINE word load(const u32 *a) { return *a; }
INLINE void store(u32 *a, word x) { *a = x; }
INLINE word splat(u32 x) { return x; }
INLINE word gather(const u32 *a, const u32 *at) { return a[*at]; }
INLINE word plus(word a, word b) { return a + b; }
INLINE word minus(word a, word b) { return a - b; }
INLINE word least(word a, word b) { return least1(a, b); }
INLINE word differ(word a, word b) { return a ^ b; }
#define ROTATED(a, by) ((a) << (by) | (a) >> (32 - (by)))
INLINE word impulse(i64 c, i64 at, u32 x) { return c == at ? x : 0; }

#endif

/* a * b / 2^32 mod p in (-p, p); needs a * b < 2^32 * p. `both` says that the lanes 2k and 2k+1 of b are equal. */
INLINE word product_(word a, word b, word p, word p_inv, int both)
{
#if !HAS_WIDE
    (void)both;
    return product1(a, b, p, p_inv);
#elif defined(__ARM_NEON)
    (void)both; /* there are products of neighbours, and low halves come without the rest */
    const word m = vmulq_u32(vmulq_u32(a, b), p_inv);
    const uint64x2_t left = vmull_u32(vget_low_u32(a), vget_low_u32(b)), right = vmull_high_u32(a, b);
    const uint64x2_t left_m = vmull_u32(vget_low_u32(m), vget_low_u32(p)), right_m = vmull_high_u32(m, p);
    return minus(vuzp2q_u32(WHOLE(left), WHOLE(right)), vuzp2q_u32(WHOLE(left_m), WHOLE(right_m)));
#else
    const wide even = times(a, b), odds = times(odd(a), both ? b : odd(b));
    const wide even_m = times(even, p_inv), odds_m = times(odds, p_inv);
    return high_halves(minus_wide(even, times(even_m, p)), minus_wide(odds, times(odds_m, p)));
#endif
}

INLINE word product_lazy(word a, word b, word p, word p_inv) { return product_(a, b, p, p_inv, 0); }
INLINE word product_by(word a, word b, word p, word p_inv) { return product_(a, b, p, p_inv, 1); }

/* x mod p in [0, p), for x in (-p, p). */
INLINE word from_signed(word x, word p) { return least(x, plus(x, p)); }
/* x mod p in [0, p), for x in [0, 2p). */
INLINE word from_twice(word x, word p) { return least(x, minus(x, p)); }

#endif
