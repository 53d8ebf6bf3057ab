#include "coll/host/coll_host_piece.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define ROW_BYTES_LEAST 4096 /* to go past the caches */

/* Where byte `at` stands, and how many follow it in its row. */
static unsigned char *
place_of(const tutti_piece *piece, uint64_t at, uint64_t *ret_run)
{
    const uint64_t row = at / piece->row_bytes;
    const uint64_t in_row = at % piece->row_bytes;

    *ret_run = piece->row_bytes - in_row;
    return piece->base + row * piece->stride + in_row;
}

typedef void *(*copy_fn)(void *to, const void *from, size_t size);

static void
copy_with(copy_fn copy, const tutti_piece *to, uint64_t to_at, const tutti_piece *from,
          uint64_t from_at, uint64_t size)
{
    while (size > 0) {
        uint64_t to_run;
        uint64_t run;
        unsigned char *dest = place_of(to, to_at, &to_run);
        const unsigned char *source = place_of(from, from_at, &run);

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
tutti_host_piece_copy(const tutti_piece *to, uint64_t to_at, const tutti_piece *from,
                      uint64_t from_at, uint64_t size)
{
    copy_with(memcpy, to, to_at, from, from_at, size);
}

#if defined(__x86_64__)
#define LINE 64
#define STRIDE (4 * LINE)
#define AHEAD 4096 /* that is a page: where the next one stands is looked up meanwhile */

/*
 * Whole lines by stores that go past the caches; these are ordered by nothing but the fence. A line
 * in one store goes out at once, in four it waits for being whole: that makes half of the speed
 * (docs/measured/2026-11-22-peers.md).
 */
__attribute__((target("avx512f"))) static size_t
stream_avx512(unsigned char *dest, const unsigned char *source, size_t size)
{
    size_t at;
    unsigned i;

    for (at = 0; at + STRIDE <= size; at += STRIDE) {
        for (i = 0; i < STRIDE; i += LINE) { /* nothing happens where there is no memory */
            _mm_prefetch((const char *)((uintptr_t)source + at + AHEAD + i), _MM_HINT_T0);
        }
        for (i = 0; i < STRIDE; i += LINE) {
            _mm512_stream_si512((void *)(dest + at + i), _mm512_loadu_si512(source + at + i));
        }
    }
    return at;
}

static size_t
stream_sse2(unsigned char *dest, const unsigned char *source, size_t size)
{
    size_t at;

    for (at = 0; at + LINE <= size; at += LINE) {
        const __m128i *in = (const __m128i *)(const void *)(source + at);
        __m128i *out = (__m128i *)(void *)(dest + at);
        const __m128i a = _mm_loadu_si128(in);
        const __m128i b = _mm_loadu_si128(in + 1);
        const __m128i c = _mm_loadu_si128(in + 2);
        const __m128i d = _mm_loadu_si128(in + 3);

        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
    }
    return at;
}

static void *
stream(void *to, const void *from, size_t size)
{
    unsigned char *dest = to;
    const unsigned char *source = from;
    size_t done = (LINE - (uintptr_t)dest % LINE) % LINE;

    done = done < size ? done : size;
    (void)memcpy(dest, source, done);
    if (__builtin_cpu_supports("avx512f")) {
        done += stream_avx512(dest + done, source + done, size - done);
    }
    done += stream_sse2(dest + done, source + done, size - done);
    _mm_sfence();
    (void)memcpy(dest + done, source + done, size - done);
    return to;
}
#else
#define stream memcpy
#endif

/* A short row costs more by the fence behind it than it saves. */
void
tutti_host_piece_copy_past_cache(const tutti_piece *to, uint64_t to_at, const tutti_piece *from,
                                 uint64_t from_at, uint64_t size)
{
    const bool is_long = to->row_bytes >= ROW_BYTES_LEAST && from->row_bytes >= ROW_BYTES_LEAST;

    copy_with(is_long ? stream : memcpy, to, to_at, from, from_at, size);
}

void
tutti_host_copy_past_cache(void *to, const void *from, size_t size)
{
    (void)stream(to, from, size);
}
