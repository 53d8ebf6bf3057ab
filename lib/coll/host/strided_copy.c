/*
 * Copies between pieces, through the caches or past them. Any thread.
 *
 * Non-temporal stores are not ordered with other stores until a store fence: stream_copy fences
 * before it returns, so whatever the caller says after it ("done", through a ring) is ordered
 * behind the data.
 */
#include "coll/host/strided_copy.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define ROW_BYTES_MIN 4096 /* to go past the caches */

/* Where byte `at` stands, and how many follow it in its row. */
static unsigned char *
find_copy_place(const tutti_strided *piece, uint64_t at, uint64_t *ret_run)
{
    const uint64_t row = at / piece->row_bytes;
    const uint64_t in_row = at % piece->row_bytes;

    *ret_run = piece->row_bytes - in_row;
    return piece->base + row * piece->stride + in_row;
}

typedef void *(*copy_fn)(void *to, const void *from, size_t size);

static void
copy_with(copy_fn copy, const tutti_strided *to, uint64_t to_at, const tutti_strided *from,
          uint64_t from_at, uint64_t size)
{
    while (size > 0) {
        uint64_t to_run;
        uint64_t run;
        unsigned char *dest = find_copy_place(to, to_at, &to_run);
        const unsigned char *source = find_copy_place(from, from_at, &run);

        run = run < to_run ? run : to_run;
        run = run < size ? run : size;
        if (dest != source) {
            (void)copy(dest, source, (size_t)run);
        }
        to_at += run;
        from_at += run;
        size -= run;
    }
}

void
tutti_host_strided_copy(const tutti_strided *to, uint64_t to_at, const tutti_strided *from,
                        uint64_t from_at, uint64_t size)
{
    copy_with(memcpy, to, to_at, from, from_at, size);
}

#if defined(__x86_64__)
#define LINE 64
#define PAGE 4096
#define STREAMS 4 /* pages that are copied side by side: more is asked for at once */
#define BLOCK (STREAMS * PAGE)
#define CHUNK (8 * LINE) /* of one of them, before the next one has its turn */
#define AHEAD (2 * BLOCK)

/*
 * Copy CHUNK bytes by stores that go past the caches, which are ordered by nothing but the fence,
 * and ask for those that stand `ahead`; nothing happens where there is no memory.
 */
typedef void (*chunk_fn)(unsigned char *dest, const unsigned char *source, size_t ahead);

static void
ask_for(const unsigned char *source)
{
    unsigned i;

    for (i = 0; i < CHUNK; i += LINE) {
        _mm_prefetch((const char *)((uintptr_t)source + i), _MM_HINT_T1);
    }
}

/* A line in one store goes out at once; in four it waits for being whole. */
__attribute__((target("avx512f"))) static void
chunk_avx512(unsigned char *dest, const unsigned char *source, size_t ahead)
{
    unsigned i;

    ask_for(source + ahead);
    for (i = 0; i < CHUNK; i += LINE) {
        _mm512_stream_si512((void *)(dest + i), _mm512_loadu_si512(source + i));
    }
}

static void
chunk_sse2(unsigned char *dest, const unsigned char *source, size_t ahead)
{
    unsigned i;

    ask_for(source + ahead);
    for (i = 0; i < CHUNK; i += sizeof(__m128i)) {
        _mm_stream_si128((__m128i *)(void *)(dest + i),
                         _mm_loadu_si128((const __m128i *)(const void *)(source + i)));
    }
}

/*
 * Four pages side by side take three quarters of the time that one after the other takes, whatever
 * the stores (docs/measured/2026-11-22-copies.md). Returns what was copied: all but less than a
 * CHUNK.
 */
static size_t
stream_chunks(chunk_fn copy, unsigned char *dest, const unsigned char *source, size_t size)
{
    size_t done;
    size_t at;
    size_t page;

    for (done = 0; done + BLOCK <= size; done += BLOCK) {
        for (at = done; at < done + PAGE; at += CHUNK) {
            for (page = 0; page < BLOCK; page += PAGE) {
                copy(dest + at + page, source + at + page, AHEAD);
            }
        }
    }
    for (; done + CHUNK <= size; done += CHUNK) {
        copy(dest + done, source + done, PAGE);
    }
    return done;
}

static void *
stream_copy(void *to, const void *from, size_t size)
{
    unsigned char *dest = to;
    const unsigned char *source = from;
    size_t done = (LINE - (uintptr_t)dest % LINE) % LINE;

    done = done < size ? done : size;
    (void)memcpy(dest, source, done);
    done += stream_chunks(__builtin_cpu_supports("avx512f") ? chunk_avx512 : chunk_sse2,
                          dest + done, source + done, size - done);
    _mm_sfence();
    (void)memcpy(dest + done, source + done, size - done);
    return to;
}
#else
#define stream_copy memcpy
#endif

/* A short row costs more by the fence behind it than it saves. */
void
tutti_host_strided_copy_past_cache(const tutti_strided *to, uint64_t to_at,
                                   const tutti_strided *from, uint64_t from_at, uint64_t size)
{
    const bool is_long = to->row_bytes >= ROW_BYTES_MIN && from->row_bytes >= ROW_BYTES_MIN;

    copy_with(is_long ? stream_copy : memcpy, to, to_at, from, from_at, size);
}

void
tutti_host_copy_past_cache(void *to, const void *from, size_t size)
{
    (void)stream_copy(to, from, size);
}
