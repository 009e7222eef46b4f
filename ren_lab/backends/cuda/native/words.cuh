/* What every rendered kernel sees: its argument, and residues modulo p, one or four side by side.
 *
 * Residues are unsigned; a negative number stands for itself plus 2^32. Montgomery's radix is 2^32; `p_inv` is p^-1 modulo 2^32.
 */

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define INLINE __device__ __forceinline__

/* Buffers in global memory are read and written here and nowhere else. Nobody reads what a kernel writes before a barrier or the
 * end. */
#ifndef READ
#define READ(type, address) (*in_global((const type *)(address)))
#define WRITE(type, address, value) put_global((type *)(address), value)

template <class T> INLINE T *in_global(T *a)
{
    __builtin_assume(__isGlobal(a)); /* so the compiler takes the instructions for it, and knows that shared memory is elsewhere */
    return a;
}
INLINE void put_global(u32 *a, u32 x) { *in_global(a) = x; }
INLINE void put_global(uint4 *a, uint4 x) /* spelled out: compilers may take it apart into four */
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(a)), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w));
}
#endif

/* The argument of a kernel: SLOTS buffers, TABLES arrays of constants, NUMBERS numbers. */
template <int SLOTS, int TABLES, int NUMBERS> struct ren_call {
    u32 *const *frame; /* null where `slot` holds addresses; otherwise it holds places in this array of addresses */
    u64 slot[SLOTS];
    const void *table[TABLES];
    i64 number[NUMBERS];
};

/* An array that nobody writes to while a kernel runs, so a value that was read once need not be read again. */
template <class T> struct constants_of {
    const T *at;
    __device__ __forceinline__ T operator[](i64 i) const { return __ldg(at + i); }
    __device__ __forceinline__ operator const T *() const { return at; }
    __device__ __forceinline__ constants_of operator+(i64 i) const { return {at + i}; }
};
typedef constants_of<u32> constants;
typedef constants_of<u64> wide_constants;

template <class CALL> INLINE u32 *slot_of(const CALL &k, int i)
{
    return k.frame ? (u32 *)__ldg((const u64 *)k.frame + k.slot[i]) : (u32 *)k.slot[i];
}
template <class CALL> INLINE constants words_of(const CALL &k, int i) { return {(const u32 *)k.table[i]}; }
template <class CALL> INLINE wide_constants wides_of(const CALL &k, int i) { return {(const u64 *)k.table[i]}; }

/* One residue. */

INLINE u32 least1(u32 a, u32 b) { return a < b ? a : b; }

/* a * b / 2^32 mod p in (-p, p); needs a * b < 2^32 * p. */
INLINE u32 product1(u32 a, u32 b, u32 p, u32 p_inv)
{
    const u64 t = (u64)a * b;
    const u32 m = (u32)t * p_inv;
    return (u32)(t >> 32) - (u32)((u64)m * p >> 32);
}

/* t / 2^32 mod p in [0, p); needs t < 2^32 * p. */
INLINE u32 reduced1(u64 t, u32 p, u32 p_inv)
{
    const u32 m = (u32)t * p_inv, raw = (u32)(t >> 32) - (u32)((u64)m * p >> 32); /* in (-p, p) */
    return least1(raw, raw + p);
}

INLINE u32 from_signed1(u32 x, u32 p) { return least1(x, x + p); } /* x mod p in [0, p), for x in (-p, p) */
INLINE u32 from_twice1(u32 x, u32 p) { return least1(x, x - p); }  /* x mod p in [0, p), for x in [0, 2p) */

/* L residues side by side; where L is 4, they are read and written by 128 bits, at multiples of 16 bytes. */

template <int L> struct words {
    u32 at[L];
};

template <int L> INLINE words<L> splat_words(u32 x)
{
    words<L> out;
#pragma unroll
    for (int i = 0; i < L; i++)
        out.at[i] = x;
    return out;
}

INLINE words<1> read_words(const u32 *a, words<1>) { return {{READ(u32, a)}}; }
INLINE words<4> read_words(const u32 *a, words<4>)
{
    const uint4 x = READ(uint4, a);
    return {{x.x, x.y, x.z, x.w}};
}

INLINE void store(u32 *a, words<1> x) { WRITE(u32, a, x.at[0]); }
INLINE void store(u32 *a, words<4> x) { WRITE(uint4, a, make_uint4(x.at[0], x.at[1], x.at[2], x.at[3])); }

template <int L> INLINE words<L> gather_words(const u32 *a, const u32 *at)
{
    words<L> out;
#pragma unroll
    for (int i = 0; i < L; i++)
        out.at[i] = READ(u32, a + __ldg(at + i));
    return out;
}

/* x at coefficient `at`, zero elsewhere, where the word stands for the coefficients from c on. */
template <int L> INLINE words<L> impulse_words(i64 c, i64 at, u32 x)
{
    words<L> out;
#pragma unroll
    for (int i = 0; i < L; i++)
        out.at[i] = c + i == at ? x : 0;
    return out;
}

/* a + b, a - b, -a and the Montgomery product a * b / 2^32, modulo p in [0, p). */

template <int L> INLINE words<L> add(words<L> a, words<L> b, words<L> p)
{
#pragma unroll
    for (int i = 0; i < L; i++)
        a.at[i] = from_twice1(a.at[i] + b.at[i], p.at[i]);
    return a;
}

template <int L> INLINE words<L> sub(words<L> a, words<L> b, words<L> p)
{
#pragma unroll
    for (int i = 0; i < L; i++)
        a.at[i] = from_signed1(a.at[i] - b.at[i], p.at[i]);
    return a;
}

template <int L> INLINE words<L> neg(words<L> a, words<L> p) { return sub(splat_words<L>(0), a, p); }

template <int L> INLINE words<L> mul(words<L> a, words<L> b, words<L> p, words<L> p_inv)
{
#pragma unroll
    for (int i = 0; i < L; i++)
        a.at[i] = from_signed1(product1(a.at[i], b.at[i], p.at[i], p_inv.at[i]), p.at[i]);
    return a;
}

template <int L> INLINE words<L> scale(words<L> a, words<L> c, words<L> p, words<L> p_inv) { return mul(a, c, p, p_inv); }

/* Sums of products of residues, 64 bits each; how many terms fit is the renderer's care. */
template <int L> struct sums {
    u64 at[L];
};

template <int L> INLINE sums<L> more_products(sums<L> s, words<L> a, words<L> b)
{
#pragma unroll
    for (int i = 0; i < L; i++)
        s.at[i] += (u64)a.at[i] * b.at[i];
    return s;
}

template <int L> INLINE sums<L> products(words<L> a, words<L> b) { return more_products(sums<L>{}, a, b); }

/* sum - 2^32 * multiple where that is not negative, and sum otherwise: only its high half is touched. */
INLINE u64 lowered1(u64 sum, u32 multiple)
{
    const u32 high = (u32)(sum >> 32);
    return (u64)least1(high, high - multiple) << 32 | (u32)sum;
}

/* Sums below 2^(32 + bits) * p, back below 2^32 * p; a multiple is below 2^32, since the sums are below 2^64. */
template <int L> INLINE sums<L> folded_sums(sums<L> s, words<L> p, i64 bits)
{
    for (i64 k = bits - 1; k >= 0; k--)
#pragma unroll
        for (int i = 0; i < L; i++)
            s.at[i] = lowered1(s.at[i], p.at[i] << k);
    return s;
}

/* s / 2^32 mod p in [0, p); needs s < 2^32 * p. */
template <int L> INLINE words<L> reduced_sums(sums<L> s, words<L> p, words<L> p_inv)
{
    words<L> out;
#pragma unroll
    for (int i = 0; i < L; i++)
        out.at[i] = reduced1(s.at[i], p.at[i], p_inv.at[i]);
    return out;
}

/* A kernel's text says by `using namespace` how many residues it works on at a time. */
namespace quads {
enum { LANES = 4 };
typedef words<LANES> word;
INLINE word splat(u32 x) { return splat_words<LANES>(x); }
INLINE word load(const u32 *a) { return read_words(a, word()); }
INLINE word gather(const u32 *a, const u32 *at) { return gather_words<LANES>(a, at); }
INLINE word impulse(i64 c, i64 at, u32 x) { return impulse_words<LANES>(c, at, x); }
}
namespace singles {
enum { LANES = 1 };
typedef words<LANES> word;
INLINE word splat(u32 x) { return splat_words<LANES>(x); }
INLINE word load(const u32 *a) { return read_words(a, word()); }
INLINE word gather(const u32 *a, const u32 *at) { return gather_words<LANES>(a, at); }
INLINE word impulse(i64 c, i64 at, u32 x) { return impulse_words<LANES>(c, at, x); }
}

/* The dynamic shared memory of a block. */
INLINE u32 *shared_words()
{
    extern __shared__ uint4 ren_shared[];
    return (u32 *)ren_shared;
}

/* A row in global memory as what a transform reads from, L residues at a time, and as what it writes to. */
template <int L> struct row_in {
    const u32 *at;
    __device__ __forceinline__ words<L> operator()(i64 c) const { return read_words(at + c, words<L>()); }
};
struct row_out {
    u32 *at;
    template <int L> __device__ __forceinline__ void operator()(i64 c, words<L> x) const { store(at + c, x); }
};
