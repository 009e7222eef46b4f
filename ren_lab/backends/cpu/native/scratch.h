/* Memory of a thread's own for rows that are used up at once. It grows as needed and goes with the thread. */
#ifndef REN_SCRATCH_H
#define REN_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>

#include "words.h"

enum { SCRATCH_ALIGNMENT = 64 };

static _Thread_local u32 *scratch_room;
static _Thread_local i64 scratch_words;

#if defined(_WIN32)
#include <malloc.h>
#define scratch_free _aligned_free
static void *scratch_new(size_t bytes) { return _aligned_malloc(bytes, SCRATCH_ALIGNMENT); }
static void scratch_goes_with_the_thread(void *room) { (void)room; } /* kernels run in the calling thread alone */
#else
#include <pthread.h>
#define scratch_free free
static pthread_key_t scratch_key;
static pthread_once_t scratch_ready = PTHREAD_ONCE_INIT;
static void scratch_make_key(void) { pthread_key_create(&scratch_key, free); }
static void *scratch_new(size_t bytes) { return aligned_alloc(SCRATCH_ALIGNMENT, bytes); }

static void scratch_goes_with_the_thread(void *room)
{
    pthread_once(&scratch_ready, scratch_make_key);
    pthread_setspecific(scratch_key, room);
}
#endif

static u32 *scratch(i64 words)
{
    if (words > scratch_words) {
        const size_t bytes = ((size_t)words * sizeof(u32) + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
        scratch_free(scratch_room);
        scratch_room = scratch_new(bytes);
        scratch_words = scratch_room ? words : 0;
        scratch_goes_with_the_thread(scratch_room);
        if (!scratch_room) { /* a megabyte or so: the system has nothing left to report it with either */
            fprintf(stderr, "ren_lab: no memory for %zu bytes of a kernel's rows\n", bytes);
            abort();
        }
    }
    return scratch_room;
}

#endif
