/* CUDA C++ on the host: what rendered kernels use of the language, and a launch that runs block after block.
 *
 * The threads of a block are fibers that run one at a time, each until it ends or meets a barrier. In which order they run
 * between two barriers is chosen by the launch, and must not matter. Every access of global memory is counted, and is checked
 * against the memory that the launch was given and against the alignment of its type; shared memory is filled with rubbish
 * before each block and has a guard behind it. The first fault is kept, and ends the launch.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

#define __device__
#define __global__
#define __shared__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(threads)

struct uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

struct dim3 {
    unsigned x, y, z;
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

enum { SHARED = 232448, GUARD = 256, MOST_THREADS = 1024, STACK = 1 << 16 };

struct range {
    uint64_t begin, end;
    uint64_t writable;
};

static const range *ranges;
static int64_t range_count;
static char fault[256];
static uint64_t bytes_read, bytes_written, constants_read; /* of buffers; of tables */

struct fiber {
    ucontext_t context;
    char *stack;
    bool done, waits;
};
static fiber fibers[MOST_THREADS];
static ucontext_t scheduler;
static int running;
static void (*kernel)(const void *);
static const void *argument;

static void pause()
{
    swapcontext(&fibers[running].context, &scheduler);
}

[[noreturn]] static void fail(const char *what, uint64_t address, int size)
{
    if (!fault[0])
        snprintf(fault, sizeof fault, "thread %u of block (%u, %u): %s, %d bytes at %llx", threadIdx.x, blockIdx.x, blockIdx.y,
                 what, size, (unsigned long long)address);
    for (;;)
        pause(); /* and is never resumed */
}

static inline void check(const void *address, int size, int alignment, bool writes)
{
    const uint64_t a = (uint64_t)address;
    if (a % alignment)
        fail("a misaligned access", a, size);
    for (int64_t i = 0; i < range_count; i++)
        if (ranges[i].begin <= a && a + size <= ranges[i].end) {
            if (writes && !ranges[i].writable)
                fail("a write to memory that is only read", a, size);
            return;
        }
    fail(writes ? "a write out of bounds" : "a read out of bounds", a, size);
}

template <class T> static inline T read(const void *address)
{
    check(address, sizeof(T), alignof(T), false);
    bytes_read += sizeof(T);
    return *(const T *)address;
}

template <class T> static inline void write(void *address, T value)
{
    check(address, sizeof(T), alignof(T), true);
    bytes_written += sizeof(T);
    *(T *)address = value;
}

static void entry()
{
    kernel(argument);
    fibers[running].done = true;
    pause();
}

}

#define READ(type, address) emulation::read<type>(address)
#define WRITE(type, address, value) emulation::write<type>(address, value)

template <class T> static inline T __ldg(const T *address)
{
    emulation::check(address, sizeof(T), sizeof(T) < 16 ? sizeof(T) : 16, false);
    emulation::constants_read += sizeof(T);
    return *address;
}

static inline void __syncthreads()
{
    emulation::fibers[emulation::running].waits = true;
    emulation::pause();
}

uint4 ren_shared[(emulation::SHARED + emulation::GUARD) / sizeof(uint4)];

namespace emulation {

static uint32_t next_random(uint32_t &state) { return state = state * 1664525u + 1013904223u, state >> 8; }

static void run_block(int threads, int shared, int order, uint32_t &state)
{
    static int turn[MOST_THREADS];
    memset(ren_shared, 0xA5, shared + GUARD);
    for (int t = 0; t < threads; t++) {
        fiber &f = fibers[t];
        if (!f.stack)
            f.stack = (char *)malloc(STACK);
        f.done = false;
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack;
        f.context.uc_stack.ss_size = STACK;
        f.context.uc_link = nullptr;
        makecontext(&f.context, entry, 0);
        turn[t] = order == 1 ? threads - 1 - t : t;
    }
    for (int left = threads; left && !fault[0];) {
        if (order == 2)
            for (int i = threads - 1; i > 0; i--) {
                const int j = next_random(state) % (i + 1), held = turn[i];
                turn[i] = turn[j], turn[j] = held;
            }
        int ended = 0, waiting = 0;
        for (int i = 0; i < threads && !fault[0]; i++) {
            fiber &f = fibers[running = turn[i]];
            if (f.done)
                continue;
            f.waits = false;
            threadIdx.x = (unsigned)running;
            swapcontext(&scheduler, &f.context);
            ended += f.done, waiting += f.waits;
        }
        left -= ended;
        if (left && ended && !fault[0])
            snprintf(fault, sizeof fault, "block (%u, %u): %d threads ended while %d wait at a barrier", blockIdx.x, blockIdx.y,
                     ended, waiting);
    }
    for (int i = 0; i < GUARD; i++)
        if (((unsigned char *)ren_shared)[shared + i] != 0xA5 && !fault[0])
            snprintf(fault, sizeof fault, "block (%u, %u): shared memory was written behind its %d bytes", blockIdx.x, blockIdx.y,
                     shared);
}

template <class CALL> static void call(void (*function)(const CALL), const void *words) { function(*(const CALL *)words); }

}

/* Runs a kernel. `order` of the threads between barriers, and of the blocks: 0 ascending, 1 descending, 2 threads at random.
 * Gives the first fault, or an empty string. `counts`: bytes of buffers read and written, of constants read; added to. */
extern "C" const char *emulate(void (*kernel)(const void *), const void *argument, const uint32_t *grid, int32_t block,
                               int32_t shared, int32_t order, uint32_t seed, const emulation::range *ranges, int64_t range_count,
                               uint64_t *counts)
{
    using namespace emulation;
    emulation::kernel = kernel, emulation::argument = argument;
    emulation::ranges = ranges, emulation::range_count = range_count;
    fault[0] = 0;
    bytes_read = bytes_written = constants_read = 0;
    gridDim = {grid[0], grid[1], grid[2]}, blockDim = {(unsigned)block, 1, 1};
    const uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    for (uint64_t i = 0; i < blocks && !fault[0]; i++) {
        const uint64_t b = order == 1 ? blocks - 1 - i : i;
        blockIdx = {(unsigned)(b % grid[0]), (unsigned)(b / grid[0] % grid[1]), (unsigned)(b / grid[0] / grid[1])};
        run_block(block, shared, order, seed);
    }
    counts[0] += bytes_read, counts[1] += bytes_written, counts[2] += constants_read;
    return fault;
}
