/* Random residues, by the definitions of sampling.h: a thread computes one block of the cipher, which serves PER_BLOCK indices
 * that stand BLOCKS_ABREAST apart, so that neighbouring threads write neighbours.
 */

enum { DRAWN_LIMBS = 16 }; /* limbs that are written from one block of the cipher, where all limbs share a number */

struct draw_stream {
    u32 key[8];
    u64 draw;
};

/* The key and the number of a draw, from the six numbers at `place`. */
template <class CALL> INLINE draw_stream stream_at(const CALL &k, int place)
{
    draw_stream out;
#pragma unroll
    for (int i = 0; i < 8; i++)
        out.key[i] = (u32)((u64)k.number[place + i / 2] >> 32 * (i % 2));
    out.draw = (u64)k.number[place + 4];
    return out;
}

/* Residues uniform on [0, p) of their limb; the index of a residue is its place in u32[limbs, n], for n = 2^log_n. */
INLINE void draw_uniform(u32 *out, const draw_stream &s, constants p, i64 limbs, i64 log_n)
{
    const i64 block = (i64)blockIdx.x * blockDim.x + threadIdx.x, total = limbs << log_n;
    const i64 first = block / BLOCKS_ABREAST * GROUP + block % BLOCKS_ABREAST;
    u32 x[16], refused = 0;
    chacha_block1(x, s.key, (u32)block, s.draw, 0);
#pragma unroll
    for (int i = 0; i < PER_BLOCK; i++) {
        const i64 index = first + i * BLOCKS_ABREAST;
        if (index < total) {
            u32 value;
            refused |= (u32)!below1(&value, x[2 * i], x[2 * i + 1], p[index >> log_n]) << i;
            WRITE(u32, out + index, value);
        }
    }
    for (int i = 0; refused; i++, refused >>= 1) /* about once in 2^33 residues */
        if (refused & 1) {
            const i64 index = first + i * BLOCKS_ABREAST;
            WRITE(u32, out + index, below_at1(s.key, s.draw, (u64)index, 1, p[index >> log_n]));
        }
}

/* Small numbers less a centre, the same for all limbs: uniform ones below `bound`, or as many as there are thresholds reached.
 * The index is the coefficient. */
template <bool REACHED>
INLINE void draw_small(u32 *out, const draw_stream &s, u32 bound, wide_constants threshold, constants p, constants p_inv,
                       constants square, constants centred, i64 limbs, i64 n)
{
    const i64 block = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 first = block / BLOCKS_ABREAST * GROUP + block % BLOCKS_ABREAST;
    u32 x[16], value[PER_BLOCK], refused = 0;
    chacha_block1(x, s.key, (u32)block, s.draw, 0);
#pragma unroll
    for (int i = 0; i < PER_BLOCK; i++)
        if (REACHED)
            value[i] = 0;
        else
            refused |= (u32)!below1(&value[i], x[2 * i], x[2 * i + 1], bound) << i;
    if (REACHED && bound <= ALL_READ) { /* each threshold is read once for all, and all are, whatever the bits */
        for (u32 t = 0; t < bound; t++) {
            const u64 limit = threshold[t];
#pragma unroll
            for (int i = 0; i < PER_BLOCK; i++)
                value[i] += limit <= ((u64)x[2 * i + 1] << 32 | x[2 * i]);
        }
    } else if (REACHED) {
#pragma unroll
        for (int i = 0; i < PER_BLOCK; i++)
            value[i] = reached1((u64)x[2 * i + 1] << 32 | x[2 * i], threshold.at, bound);
    }
    if (refused) /* about once in 2^61 numbers */
#pragma unroll
        for (int i = 0; i < PER_BLOCK; i++)
            if (refused >> i & 1)
                value[i] = below_at1(s.key, s.draw, (u64)(first + i * BLOCKS_ABREAST), 1, bound);
    const i64 begin = (i64)blockIdx.y * DRAWN_LIMBS, end = limbs - begin < DRAWN_LIMBS ? limbs : begin + DRAWN_LIMBS;
    for (i64 j = begin; j < end; j++) {
        const u32 modulus = p[j], inverse = p_inv[j], factor = square[j], centre = centred[j];
#pragma unroll
        for (int i = 0; i < PER_BLOCK; i++) {
            const i64 c = first + i * BLOCKS_ABREAST;
            if (c < n)
                WRITE(u32, out + j * n + c, residue1(value[i], factor, centre, modulus, inverse));
        }
    }
}
