/* Threads that share the parts of a kernel among them.
 *
 * The calling thread works as well, and never waits for a thread that has not begun: parts are handed out one by one. While one
 * kernel holds the pool, others run in their own thread alone. A child process starts without threads and makes its own.
 */
#include "kernel.h"

static _Thread_local i64 threads_allowed = 1; /* of the running call, the caller included */

static void run_alone(ren_part *part, const ren_call *call, i64 count)
{
    for (i64 i = 0; i < count; i++)
        part(call, i);
}

#if defined(_WIN32)

static void run(ren_part *part, const ren_call *call, i64 count, i64 cost)
{
    (void)cost;
    run_alone(part, call, count);
}

#else

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { MAX_THREADS = 256, GRAIN = 1 << 14 };

/* How often a thread looks for the next kernel before it sleeps: about a millisecond. The kernels of a plan follow one another
 * within microseconds, and a thread that was asleep may be woken on the processor of the thread that wakes it. */
enum { SPINS = 20000 };

/* A worker that others have pushed off its processor holds up the whole kernel. So accounts are kept, in nanoseconds: what the
 * workers' items would have taken the caller, less what it waited for them at the end. Up to CREDIT is kept of gains, about what a
 * turn of another process takes; when it is used up, the next kernels run alone: REST of them, twice as many each time until it
 * has been earned again. */
enum { CREDIT = 10000000, REST = 32, LONGEST_REST = 1024 };

static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER; /* held by the caller whose kernel has the pool */
static pthread_mutex_t state = PTHREAD_MUTEX_INITIALIZER; /* of everything below */
static pthread_cond_t work_comes = PTHREAD_COND_INITIALIZER, work_ends = PTHREAD_COND_INITIALIZER;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;
static i64 credit = CREDIT, resting, rest = REST; /* kernels still to run alone, and how many it will be next time; all of the owner */
static i64 workers, sleepers, places;
static atomic_long active; /* workers in the job; changed under `state`, read without while its end is awaited */
static atomic_long generation; /* changes when a job opens */
static ren_part *job_part;
static const ren_call *job_call;
static i64 job_count;
static atomic_long job_next;

/* One round of waiting. Now and then whoever else wants this processor gets it: it may be the thread that is waited for. */
static void pause_briefly(int round)
{
    if (round % 64 == 63)
        sched_yield();
#if defined(__x86_64__) || defined(__i386__)
    else
        __builtin_ia32_pause();
#endif
}

static i64 work(ren_part *part, const ren_call *call, i64 count) /* gives the number of items done */
{
    i64 done = 0;
    for (i64 i; (i = atomic_fetch_add_explicit(&job_next, 1, memory_order_relaxed)) < count; done++)
        part(call, i);
    return done;
}

static i64 nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (i64)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *worker(void *unused)
{
    (void)unused;
    long seen = 0;
    for (;;) {
        for (int spin = 0; spin < SPINS && atomic_load_explicit(&generation, memory_order_relaxed) == seen; spin++)
            pause_briefly(spin);
        pthread_mutex_lock(&state);
        while (atomic_load_explicit(&generation, memory_order_relaxed) == seen) {
            sleepers++;
            pthread_cond_wait(&work_comes, &state);
            sleepers--;
        }
        seen = atomic_load_explicit(&generation, memory_order_relaxed);
        if (places > 0) { /* the job is open and wants one more thread */
            places--;
            atomic_fetch_add_explicit(&active, 1, memory_order_relaxed);
            ren_part *const part = job_part;
            const ren_call *const call = job_call;
            const i64 count = job_count;
            pthread_mutex_unlock(&state);
            work(part, call, count);
            pthread_mutex_lock(&state);
            if (atomic_fetch_sub_explicit(&active, 1, memory_order_release) == 1)
                pthread_cond_signal(&work_ends);
        }
        pthread_mutex_unlock(&state);
    }
    return 0;
}

static void before_fork(void)
{
    pthread_mutex_lock(&owner); /* no job runs, so no lock below is held for long */
    pthread_mutex_lock(&state);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&state);
    pthread_mutex_unlock(&owner);
}

static void after_fork_in_child(void)
{
    pthread_mutex_init(&owner, 0);
    pthread_mutex_init(&state, 0);
    pthread_cond_init(&work_comes, 0);
    pthread_cond_init(&work_ends, 0);
    workers = sleepers = places = resting = 0;
    atomic_store(&active, 0);
}

static void prepare(void) { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

static void run(ren_part *part, const ren_call *call, i64 count, i64 cost)
{
    i64 helpers = (threads_allowed < count ? threads_allowed : count) - 1;
    if (helpers > cost / GRAIN)
        helpers = cost / GRAIN;
    if (helpers > MAX_THREADS)
        helpers = MAX_THREADS;
    if (helpers > 0)
        pthread_once(&prepared, prepare);
    if (helpers <= 0 || pthread_mutex_trylock(&owner) != 0) {
        run_alone(part, call, count);
        return;
    }
    if (resting > 0) {
        resting--;
        pthread_mutex_unlock(&owner);
        run_alone(part, call, count);
        return;
    }
    pthread_mutex_lock(&state);
    while (workers < helpers) {
        pthread_t thread;
        if (pthread_create(&thread, 0, worker, 0) != 0)
            break; /* fewer threads, the same results */
        pthread_detach(thread);
        workers++;
    }
    job_part = part;
    job_call = call;
    job_count = count;
    places = helpers;
    atomic_store_explicit(&job_next, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
    if (sleepers > 0)
        pthread_cond_broadcast(&work_comes);
    pthread_mutex_unlock(&state);

    const i64 begun = nanoseconds(), done = work(part, call, count), ended = nanoseconds();

    pthread_mutex_lock(&state);
    places = 0; /* closed: whoever has not begun stays out */
    pthread_mutex_unlock(&state);
    for (int spin = 0; spin < SPINS && atomic_load_explicit(&active, memory_order_acquire) > 0; spin++)
        pause_briefly(spin);
    pthread_mutex_lock(&state);
    while (atomic_load_explicit(&active, memory_order_acquire) > 0)
        pthread_cond_wait(&work_ends, &state);
    pthread_mutex_unlock(&state);
    if (done > 0)
        credit += (count - done) * ((ended - begun) / done);
    credit -= nanoseconds() - ended;
    if (credit < 0) {
        credit = 0;
        resting = rest;
        rest = rest < LONGEST_REST ? 2 * rest : rest;
    } else if (credit > CREDIT) {
        credit = CREDIT;
        rest = REST;
    }
    pthread_mutex_unlock(&owner);
}

#endif
