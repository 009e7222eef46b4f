/* What all kernels share: transforms, base conversion, threads, and the runner of whole plans. */
#include <string.h>

#include "draw.h"
#include "pool.h"
#include "scratch.h"
#include "transform.h"

static void combine1(u32 *out, const u32 *y, i64 y_stride, i64 terms, const u32 *factor, u32 p, u32 p_inv, i64 per_fold, i64 bits)
{
    u64 sum = 0;
    for (i64 i = 0; i < terms;) {
        for (const i64 end = terms - i < per_fold ? terms : i + per_fold; i < end; i++)
            sum += (u64)y[i * y_stride] * factor[i];
        sum = folded1(sum, p, bits);
    }
    *out = redc1(sum, p, p_inv);
}

#if HAS_WIDE

#if defined(__AVX512F__)
enum { WORDS = 2 };
#else
enum { WORDS = 1 };
#endif

INLINE void combine_words(u32 *out, i64 out_stride, const u32 *y, i64 y_stride, i64 terms, const u32 *factor, const u32 *p,
                          const u32 *p_inv, i64 per_fold, i64 bits, const int rows, const int words)
{
    wide even[4][2], odds[4][2];
    for (int r = 0; r < rows; r++)
        for (int w = 0; w < words; w++)
            even[r][w] = odds[r][w] = splat_wide(0);
    for (i64 i = 0; i < terms;) {
        for (const i64 end = terms - i < per_fold ? terms : i + per_fold; i < end; i++)
            for (int w = 0; w < words; w++) {
                const word a = load(y + i * y_stride + w * LANES);
                const wide b = odd(a);
                for (int r = 0; r < rows; r++) {
                    const word f = splat(factor[r * terms + i]);
                    even[r][w] = plus_wide(even[r][w], times(a, f));
                    odds[r][w] = plus_wide(odds[r][w], times(b, f));
                }
            }
        if (bits > 0)
            for (int r = 0; r < rows; r++)
                for (int w = 0; w < words; w++) {
                    const sums s = folded_sums((sums){even[r][w], odds[r][w]}, splat(p[r]), bits);
                    even[r][w] = s.even;
                    odds[r][w] = s.odds;
                }
    }
    for (int r = 0; r < rows; r++) {
        const word modulus = splat(p[r]), inverse = splat(p_inv[r]);
        for (int w = 0; w < words; w++)
            store(out + r * out_stride + w * LANES, reduced_sums((sums){even[r][w], odds[r][w]}, modulus, inverse));
    }
}

#endif

static void combine(u32 *out, i64 out_stride, const u32 *y, i64 y_stride, i64 terms, i64 width, i64 rows, const u32 *factor,
                    const u32 *p, const u32 *p_inv, i64 terms_per_fold, i64 fold_bits)
{
    i64 c = 0;
#if HAS_WIDE
    for (; c + WORDS * LANES <= width; c += WORDS * LANES) {
        if (rows == 4)
            combine_words(out + c, out_stride, y + c, y_stride, terms, factor, p, p_inv, terms_per_fold, fold_bits, 4, WORDS);
        else
            for (i64 r = 0; r < rows; r++)
                combine_words(out + r * out_stride + c, out_stride, y + c, y_stride, terms, factor + r * terms, p + r, p_inv + r,
                              terms_per_fold, fold_bits, 1, WORDS);
    }
#endif
    for (; c < width; c++)
        for (i64 r = 0; r < rows; r++)
            combine1(out + r * out_stride + c, y + c, y_stride, terms, factor + r * terms, p[r], p_inv[r], terms_per_fold,
                     fold_bits);
}

static void estimate(u32 *y, i64 terms, i64 width, const u64 *weight)
{
    const u64 rounding = (1ull << 31) + (u64)terms;
    i64 c = 0;
#if HAS_WIDE
    for (; c + LANES <= width; c += LANES) {
        wide even = splat_wide(rounding), odds = even;
        for (i64 i = 0; i < terms; i++) { /* y * weight < 2^63, with the weight in two halves */
            const word a = load(y + i * width + c);
            const wide b = odd(a), low = splat_wide(weight[i]), high = splat_wide(weight[i] >> 32);
            even = plus_wide(even, down31(plus_wide(times(a, low), up(times(a, high)))));
            odds = plus_wide(odds, down31(plus_wide(times(b, low), up(times(b, high)))));
        }
        store(y + terms * width + c, high_halves(even, odds));
    }
#endif
    for (; c < width; c++) {
        u64 sum = rounding;
        for (i64 i = 0; i < terms; i++)
            sum += (y[i * width + c] * weight[i]) >> 31;
        y[terms * width + c] = (u32)(sum >> 32);
    }
}

static const ren_runtime runtime = {run, ntt, intt, estimate, combine, scratch};

typedef void ren_kernel(const ren_call *call);

/* One kernel on its buffers. */
EXPORT ren_invoke(ren_kernel *kernel, u32 *const *slot, const void *const *table, const i64 *number, i64 threads)
{
    const ren_call call = {&runtime, slot, table, number};
    threads_allowed = threads;
    kernel(&call);
}

/* One step of a plan: a kernel, and where in the frame its buffers stand; or, without a kernel, a copy of number[0] bytes. */
typedef struct {
    ren_kernel *kernel;
    const int32_t *place;
    i64 places;
    const void *const *table;
    const i64 *number;
} ren_step;

/* A place of the frame that lies some bytes behind another one. */
typedef struct {
    i64 place, base, bytes;
} ren_window;

/* All steps, one after the other, once the windows are in their places. `slot` is room for the buffers of any step. */
EXPORT ren_run_plan(const ren_step *step, i64 steps, const ren_window *window, i64 windows, u32 **frame, u32 **slot, i64 threads)
{
    threads_allowed = threads;
    for (const ren_window *end = window + windows; window < end; window++)
        frame[window->place] = (u32 *)((char *)frame[window->base] + window->bytes);
    for (const ren_step *end = step + steps; step < end; step++) {
        for (i64 i = 0; i < step->places; i++)
            slot[i] = frame[step->place[i]];
        if (step->kernel) {
            const ren_call call = {&runtime, slot, step->table, step->number};
            step->kernel(&call);
        } else {
            memcpy(slot[0], slot[1], (size_t)step->number[0]);
        }
    }
}

/* A random draw into u32[limbs, n]. */
EXPORT ren_draw_into(u32 *out, const ren_draw *what, i64 threads)
{
    threads_allowed = threads;
    draw(out, what, &runtime);
}

/* How many residues a word of this build holds. */
#if defined(_WIN32)
__declspec(dllexport)
#else
__attribute__((visibility("default")))
#endif
int ren_lanes(void) { return LANES; }
