/* The negacyclic transforms, in the order of Longa and Naehrig (2016): with the whole row as node 1 of a binary tree, the block
 * of node i has the factor psi[i], and its halves are the nodes 2i and 2i + 1.
 *
 * A row that fits into shared memory is one block of threads. A longer one is seen as a matrix of 2^k rows: one launch
 * transforms its columns (the first k stages, node 1), another its rows (the nodes 2^k and up), each with one load and one store
 * of global memory. Each thread has E residues in registers and does up to four stages on them (radix 16); between such groups
 * of stages the block exchanges residues through shared memory.
 *
 * Lazy arithmetic (after Harvey, 2014) where all p < 2^30, with B = 2p: the forward direction keeps values in [0, 2B), the
 * inverse in [0, B). Otherwise B = p, up to 2^31, and products are reduced once more.
 */

/* The constants of a transform of one limb. */
struct ren_transform {
    i64 n;
    u32 p, p_inv;
    u32 n_inv, psi1_n_inv; /* of the inverse: n^-1 and psi^-brv(1) * n^-1, in Montgomery form */
    const u32 *psi;        /* u32[n]: psi^brv(i), or psi^-brv(i) of the inverse, in Montgomery form */
};

template <class CALL> INLINE ren_transform transform_of(const CALL &k, int i, i64 limb)
{
    return ((const ren_transform *)k.table[i])[limb];
}

/* B depends on n, which is never 0, so that the assembler does not see 2p in it: what adds 2p is a shift with a sum, and two
 * instructions in each butterfly would not be one. */
template <bool LAZY> struct modulus_of {
    u32 p, minus_inv, bound;
    const u32 *psi;
    __device__ __forceinline__ modulus_of(const ren_transform &t)
        : p(t.p), minus_inv(0 - t.p_inv), bound(t.n ? LAZY ? 2 * t.p : t.p : 0), psi(t.psi) {}

    /* a * b / 2^32 mod p in [0, 2p), for a * b < 2^32 * p; the sum is below 2^33 * p <= 2^64. */
    __device__ __forceinline__ u32 times(u32 a, u32 b) const
    {
        const u64 t = (u64)a * b;
        return (u32)((t + (u64)((u32)t * minus_inv) * p) >> 32);
    }
    /* The same in [0, B): it is there already, or one subtraction away. */
    __device__ __forceinline__ u32 bounded(u32 a, u32 b) const
    {
        const u32 x = times(a, b);
        return LAZY ? x : least1(x, x - p);
    }
};

/* (x + w*y, x - w*y): from [0, 2B) to [0, 2B), where y * w < 2B * p <= 2^32 * p. */
template <bool LAZY> INLINE void forward_butterfly(u32 &x, u32 &y, u32 w, const modulus_of<LAZY> &q)
{
    const u32 a = least1(x, x - q.bound), b = q.bounded(y, w); /* both in [0, B) */
    x = a + b;
    y = a - b + q.bound;
}

/* (x + y, (x - y) * w): from [0, B) to [0, B); the difference plus B is in (0, 2B), and 2B <= 2^32. */
template <bool LAZY> INLINE void inverse_butterfly(u32 &x, u32 &y, u32 w, const modulus_of<LAZY> &q)
{
    const u32 s = x + y, d = x - y + q.bound;
    x = least1(s, s - q.bound);
    y = q.bounded(d, w);
}

/* The last stage of the inverse with the factor 1/n: ((x + y) * f, (x - y) * w), from [0, B) to [0, p). */
template <bool LAZY> INLINE void last_butterfly(u32 &x, u32 &y, u32 f, u32 w, const modulus_of<LAZY> &q)
{
    const u32 s = x + y, d = x - y + q.bound; /* both below 2B */
    x = from_twice1(q.times(s, f), q.p);
    y = from_twice1(q.times(d, w), q.p);
}

/* 2^e factors from psi[first] on; `first` is a multiple of 2^e, so they are read by up to 128 bits. */
template <int COUNT> INLINE void read_factors(u32 (&w)[8], const u32 *psi, int first)
{
    if constexpr (COUNT == 1) {
        w[0] = __ldg(psi + first);
    } else if constexpr (COUNT == 2) {
        const uint2 a = __ldg((const uint2 *)(psi + first));
        w[0] = a.x, w[1] = a.y;
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            const uint4 a = __ldg((const uint4 *)(psi + first + i));
            w[i] = a.x, w[i + 1] = a.y, w[i + 2] = a.z, w[i + 3] = a.w;
        }
    }
}

/* One stage on the 2^G residues from x[FIRST] on, whose node is `node`: stage E of G, on 2^E blocks. */
template <int G, int E, int FIRST, bool INVERSE, bool LAST, bool LAZY, int N>
INLINE void stage(u32 (&x)[N], int node, const modulus_of<LAZY> &q, u32 n_inv, u32 psi1_n_inv)
{
    constexpr int HALF = 1 << (G - 1 - E);
    u32 w[8];
    if constexpr (!LAST)
        read_factors<1 << E>(w, q.psi, node << E);
#pragma unroll
    for (int i = 0; i < 1 << E; i++)
#pragma unroll
        for (int l = 0; l < HALF; l++) {
            u32 &a = x[FIRST + 2 * HALF * i + l], &b = x[FIRST + 2 * HALF * i + HALF + l];
            if constexpr (LAST)
                last_butterfly(a, b, n_inv, psi1_n_inv, q);
            else if constexpr (INVERSE)
                inverse_butterfly(a, b, w[i], q);
            else
                forward_butterfly(a, b, w[i], q);
        }
}

template <int G, int FIRST, bool LAZY, int N, int E = 0>
INLINE void forward_stages(u32 (&x)[N], int node, const modulus_of<LAZY> &q)
{
    stage<G, E, FIRST, false, false>(x, node, q, 0, 0);
    if constexpr (E + 1 < G)
        forward_stages<G, FIRST, LAZY, N, E + 1>(x, node, q);
}

template <int G, int FIRST, bool END, bool LAZY, int N, int E = G - 1>
INLINE void inverse_stages(u32 (&x)[N], int node, const modulus_of<LAZY> &q, const ren_transform &t)
{
    stage<G, E, FIRST, true, END && E == 0>(x, node, q, t.n_inv, t.psi1_n_inv);
    if constexpr (E > 0)
        inverse_stages<G, FIRST, END, LAZY, N, E - 1>(x, node, q, t);
}

/* What a block of threads works on: 2^LOG_COUNT pieces of 2^LOG residues of a row of 2^LOG_N, which are columns or rows of it.
 *
 * A residue has a place in its piece, and a position in the block's residues and in the row. Which thread has which residues
 * changes only bits: the bits of the thread and those that count a thread's own residues never meet, so that whatever maps bits
 * to bits (`place`, `at`, `spaced`) is the sum of a part of the thread and of a constant.
 */
template <int LOG_, int LOG_COUNT_, int LOG_N_, bool COLUMNS_> struct tile {
    static constexpr int LOG = LOG_, LOG_COUNT = LOG_COUNT_, LOG_N = LOG_N_;
    static constexpr bool COLUMNS = COLUMNS_;
    static constexpr int E = LOG < 4 ? 1 << LOG : 16;                        /* residues of a thread */
    static constexpr int EACH = (1 << LOG) / E, THREADS = EACH << LOG_COUNT; /* threads of a piece, of a block */

    /* How many stages the group of stages that begins at a depth has: as even as can be, at most 4. */
    static __device__ constexpr int stages(int depth)
    {
        const int left = LOG - depth, groups = (left + 3) / 4;
        return (left + groups - 1) / groups;
    }
    /* The depth at which the group before the one at `depth` begins. */
    static __device__ constexpr int depth_before(int depth)
    {
        int before = 0;
        while (before + stages(before) < depth)
            before += stages(before);
        return before;
    }
    static __device__ constexpr int last_depth() { return depth_before(LOG); }

    /* The place of residue j of set q, in the group of G stages at DEPTH: a set is what a butterfly network of G stages works
     * on, and its residues are 2^(LOG - DEPTH - G) apart. */
    template <int DEPTH, int G> static __device__ constexpr int place(int q, int j)
    {
        constexpr int LOW = LOG - DEPTH - G;
        return ((q >> LOW) << (LOW + G)) + (j << LOW) + (q & ((1 << LOW) - 1));
    }
    /* Positions in shared memory and in the row of a place, as far as they depend on it. */
    static __device__ constexpr int at(int place) { return COLUMNS ? place << LOG_COUNT : place; }
    static __device__ constexpr int in_row(int place) { return COLUMNS ? place << (LOG_N - LOG) : place; }
    /* Gaps in shared memory keep the threads of a warp in different banks: one behind each set of the last group, where the sets of
     * neighbouring threads follow one another; for columns, 16 behind every 16 places of 16 columns. */
    static __device__ constexpr int spaced(int a)
    {
        return COLUMNS ? a + ((a >> 8) << 4) : a + (a >> stages(last_depth()));
    }

    int piece, thread; /* which piece, and which of its threads */
    int first, begin;  /* position in the row of the block's first residue where pieces are rows, and of the piece's first one */
    int root;          /* node of the piece */

    __device__ __forceinline__ tile()
    {
        const int t = threadIdx.x, block = blockIdx.x;
        piece = COLUMNS ? t & ((1 << LOG_COUNT) - 1) : t / EACH;
        thread = COLUMNS ? t >> LOG_COUNT : t % EACH;
        first = block << (COLUMNS ? LOG_COUNT : LOG + LOG_COUNT);
        begin = first + (COLUMNS ? piece : piece << LOG);
        root = COLUMNS ? 1 : (1 << (LOG_N - LOG)) + (begin >> LOG);
    }

    /* Of residue j of the thread's set u: the address in shared memory, and the position in the row. */
    template <int DEPTH, int G> __device__ __forceinline__ int shared(int u, int j) const
    {
        return spaced(at(place<DEPTH, G>(thread, 0)) + (COLUMNS ? piece : piece << LOG)) + spaced(at(place<DEPTH, G>(u * EACH, j)));
    }
    template <int DEPTH, int G> __device__ __forceinline__ i64 position(int u, int j) const
    {
        return (i64)(begin + in_row(place<DEPTH, G>(thread, 0))) + in_row(place<DEPTH, G>(u * EACH, j));
    }
    template <int DEPTH, int G> __device__ __forceinline__ int node(int u) const
    {
        return (root << DEPTH) + ((thread + u * EACH) >> (LOG - DEPTH - G));
    }
};

template <int DEPTH, int G, bool WRITES, class TILE> INLINE void exchange(u32 (&x)[TILE::E], const TILE &tile, u32 *room)
{
#pragma unroll
    for (int u = 0; u < TILE::E >> G; u++)
#pragma unroll
        for (int j = 0; j < 1 << G; j++) {
            u32 &mine = room[tile.template shared<DEPTH, G>(u, j)];
            if (WRITES)
                mine = x[(u << G) + j];
            else
                x[(u << G) + j] = mine;
        }
}

template <int G, bool INVERSE, bool END, int DEPTH, int U, class TILE, bool LAZY>
INLINE void sets(u32 (&x)[TILE::E], const TILE &tile, const modulus_of<LAZY> &q, const ren_transform &t)
{
    const int node = tile.template node<DEPTH, G>(U);
    if constexpr (INVERSE)
        inverse_stages<G, (U << G), END>(x, node, q, t);
    else
        forward_stages<G, (U << G)>(x, node, q);
    if constexpr (U + 1 < TILE::E >> G)
        sets<G, INVERSE, END, DEPTH, U + 1>(x, tile, q, t);
}

/* The groups of stages from DEPTH on. Residues of the first one are in `x`, and those of the last one stay there. */
template <int DEPTH, class TILE, bool LAZY>
INLINE void forward_groups(u32 (&x)[TILE::E], const TILE &tile, const modulus_of<LAZY> &q, const ren_transform &t, u32 *room)
{
    constexpr int G = TILE::stages(DEPTH);
    sets<G, false, false, DEPTH, 0>(x, tile, q, t);
    if constexpr (DEPTH + G < TILE::LOG) {
        exchange<DEPTH, G, true>(x, tile, room);
        __syncthreads();
        exchange<DEPTH + G, TILE::stages(DEPTH + G), false>(x, tile, room);
        forward_groups<DEPTH + G>(x, tile, q, t, room);
    }
}

/* The groups of stages from the one at DEPTH up to the first. END: that is the last of the whole row. */
template <int DEPTH, bool END, class TILE, bool LAZY>
INLINE void inverse_groups(u32 (&x)[TILE::E], const TILE &tile, const modulus_of<LAZY> &q, const ren_transform &t, u32 *room)
{
    constexpr int G = TILE::stages(DEPTH);
    sets<G, true, END && DEPTH == 0, DEPTH, 0>(x, tile, q, t);
    if constexpr (DEPTH > 0) {
        constexpr int BEFORE = TILE::depth_before(DEPTH);
        exchange<DEPTH, G, true>(x, tile, room);
        __syncthreads();
        exchange<BEFORE, TILE::stages(BEFORE), false>(x, tile, room);
        inverse_groups<BEFORE, END>(x, tile, q, t, room);
    }
}

/* All residues of a tile of rows, LANES at a time and in order, through shared memory. */
template <class TILE, int LANES, class FUNCTION> INLINE void in_order(const TILE &tile, u32 *room, FUNCTION function)
{
#pragma unroll 2
    for (int i = 0; i < TILE::E / LANES; i++) { /* two at a time: enough loads are under way, and registers are left */
        const int a = (i * TILE::THREADS + (int)threadIdx.x) * LANES;
        function((i64)tile.first + a, room + TILE::spaced(a)); /* LANES <= 4 neighbours have no gap between them */
    }
}

template <bool LAZY, class TILE, int LANES, class VALUE, class KEEP>
INLINE void forward_tile(const ren_transform &t, VALUE value, KEEP keep)
{
    const TILE tile;
    const modulus_of<LAZY> q(t);
    u32 *const room = shared_words();
    u32 x[TILE::E];
    constexpr int G = TILE::stages(0), LAST = TILE::last_depth(), H = TILE::stages(LAST);
#pragma unroll
    for (int u = 0; u < TILE::E >> G; u++)
#pragma unroll
        for (int j = 0; j < 1 << G; j++)
            x[(u << G) + j] = value(tile.template position<0, G>(u, j)).at[0];
    forward_groups<0>(x, tile, q, t, room);
    if constexpr (TILE::COLUMNS) { /* values stay in [0, 2B) for the rows */
#pragma unroll
        for (int u = 0; u < TILE::E >> H; u++)
#pragma unroll
            for (int j = 0; j < 1 << H; j++)
                keep(tile.template position<LAST, H>(u, j), words<1>{{x[(u << H) + j]}});
    } else {
        exchange<LAST, H, true>(x, tile, room); /* a thread writes where it alone has read */
        __syncthreads();
        in_order<TILE, LANES>(tile, room, [&](i64 c, const u32 *from) {
            words<LANES> y;
#pragma unroll
            for (int i = 0; i < LANES; i++) {
                y.at[i] = least1(from[i], from[i] - q.bound); /* in [0, B) */
                y.at[i] = from_twice1(y.at[i], q.p);
            }
            keep(c, y);
        });
    }
}

template <bool LAZY, class TILE, int LANES, bool END, class VALUE, class KEEP>
INLINE void inverse_tile(const ren_transform &t, VALUE value, KEEP keep)
{
    const TILE tile;
    const modulus_of<LAZY> q(t);
    u32 *const room = shared_words();
    u32 x[TILE::E];
    constexpr int G = TILE::stages(0), LAST = TILE::last_depth(), H = TILE::stages(LAST);
    if constexpr (TILE::COLUMNS) {
#pragma unroll
        for (int u = 0; u < TILE::E >> H; u++)
#pragma unroll
            for (int j = 0; j < 1 << H; j++)
                x[(u << H) + j] = value(tile.template position<LAST, H>(u, j)).at[0];
    } else {
        in_order<TILE, LANES>(tile, room, [&](i64 c, u32 *to) {
            const words<LANES> y = value(c);
#pragma unroll
            for (int i = 0; i < LANES; i++)
                to[i] = y.at[i];
        });
        __syncthreads();
        exchange<LAST, H, false>(x, tile, room);
    }
    inverse_groups<LAST, END>(x, tile, q, t, room);
#pragma unroll
    for (int u = 0; u < TILE::E >> G; u++)
#pragma unroll
        for (int j = 0; j < 1 << G; j++)
            keep(tile.template position<0, G>(u, j), words<1>{{x[(u << G) + j]}});
}

/* The first 2^LOG-point stages of a row, on a block of 2^LOG_COUNT columns, and the others, on as many rows. `value(c)` gives
 * the residue at c, in [0, p); `keep(c, x)` takes the result. */
template <bool LAZY, int LOG, int LOG_COUNT, int LOG_N, class VALUE, class KEEP>
INLINE void forward_columns(const ren_transform &t, VALUE value, KEEP keep)
{
    forward_tile<LAZY, tile<LOG, LOG_COUNT, LOG_N, true>, 1>(t, value, keep);
}

template <bool LAZY, int LOG, int LOG_COUNT, int LOG_N, int LANES, class VALUE, class KEEP>
INLINE void forward_rows(const ren_transform &t, VALUE value, KEEP keep)
{
    forward_tile<LAZY, tile<LOG, LOG_COUNT, LOG_N, false>, LANES>(t, value, keep);
}

/* The same backwards: rows first. END: rows are the whole row, and get the factor 1/n, as columns always do. */
template <bool LAZY, int LOG, int LOG_COUNT, int LOG_N, int LANES, bool END, class VALUE, class KEEP>
INLINE void inverse_rows(const ren_transform &t, VALUE value, KEEP keep)
{
    inverse_tile<LAZY, tile<LOG, LOG_COUNT, LOG_N, false>, LANES, END>(t, value, keep);
}

template <bool LAZY, int LOG, int LOG_COUNT, int LOG_N, class VALUE, class KEEP>
INLINE void inverse_columns(const ren_transform &t, VALUE value, KEEP keep)
{
    inverse_tile<LAZY, tile<LOG, LOG_COUNT, LOG_N, true>, 1, true>(t, value, keep);
}
