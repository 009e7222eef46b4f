/* Base conversion as a product of a small matrix with columns that stand in shared memory.
 *
 * A block of threads works on `width` words of columns; its threads are groups of `width`, lane by lane. First the groups share
 * out the rows of the operand, then the rows of the result, some at a time.
 */

/* Adds the share of y, below p < 2^31, in the estimate of the quotient; `weight` is floor(2^63 / p), so y * weight < 2^63. */
template <int L> INLINE void add_share(sums<L> &sum, words<L> y, u64 weight)
{
#pragma unroll
    for (int i = 0; i < L; i++)
        sum.at[i] += (y.at[i] * weight) >> 31; /* below 2^32 each */
}

/* e = (the groups' sums together + 2^31 + terms) >> 32 of each column, into the row `e`. `room` holds u64[groups][width words]. */
template <int L>
INLINE void share_estimate(u32 *e, u64 *room, const sums<L> &sum, int group, int lane, int groups, int width, i64 terms)
{
    u64 *const mine = room + ((i64)group * width + lane) * L;
#pragma unroll
    for (int i = 0; i < L; i++)
        mine[i] = sum.at[i];
    __syncthreads();
    if (group == 0)
#pragma unroll
        for (int i = 0; i < L; i++) {
            u64 total = (1ull << 31) + (u64)terms;
            for (int g = 0; g < groups; g++)
                total += room[((i64)g * width + lane) * L + i];
            e[lane * L + i] = (u32)(total >> 32);
        }
    __syncthreads();
}

template <int L> INLINE void put_shared(u32 *a, words<L> x)
{
    if (L == 4)
        *(uint4 *)a = make_uint4(x.at[0], x.at[1 % L], x.at[2 % L], x.at[3 % L]);
    else
        *a = x.at[0];
}
INLINE words<1> get_shared(const u32 *a, words<1>) { return {{*a}}; }
INLINE words<4> get_shared(const u32 *a, words<4>)
{
    const uint4 x = *(const uint4 *)a;
    return {{x.x, x.y, x.z, x.w}};
}

/* out[r] = sum over i of y[i] * factor[r][i] / 2^32 mod p[r], in [0, p[r]), for ROWS rows, of which only the first `rows` count.
 * `y` is this lane's column, rows of `stride` residues apart; after `per_fold` products a sum is folded by `bits` bits. */
template <int ROWS, int L>
INLINE void combine(words<L> (&out)[ROWS], const u32 *y, int stride, int terms, i64 rows, constants factor, constants p,
                    constants p_inv, int per_fold, int bits)
{
    u64 sum[ROWS][L];
    int at[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        at[r] = r < rows ? r : (int)rows - 1; /* rows beyond the last repeat it, and are not used */
#pragma unroll
        for (int l = 0; l < L; l++)
            sum[r][l] = 0;
    }
    const u32 *f = factor.at;
    for (int left = terms; left > 0; left -= per_fold) {
#pragma unroll 2
        for (int i = left < per_fold ? left : per_fold; i > 0; i--, y += stride, f++) { /* sums stay below 2^64: see `fold` */
            const words<L> a = get_shared(y, words<L>());
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const u32 c = __ldg(f + at[r] * terms);
#pragma unroll
                for (int l = 0; l < L; l++)
                    sum[r][l] += (u64)a.at[l] * c;
            }
        }
#pragma unroll 1
        for (int k = bits - 1; k >= 0; k--) /* from below 2^(32 + bits) * p to below 2^32 * p, as `folded_sums` */
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int l = 0; l < L; l++)
                    sum[r][l] = lowered1(sum[r][l], p[at[r]] << k);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int l = 0; l < L; l++)
            out[r].at[l] = reduced1(sum[r][l], p[at[r]], p_inv[at[r]]); /* below 2^32 * p: folded, or small enough as it is */
}
