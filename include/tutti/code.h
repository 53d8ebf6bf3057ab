/*
 * Codes: how a call ended, for programs.
 *
 * The numbers are gRPC's, so a code crosses the wire unchanged. What a person reads is in
 * tutti_error.text; what a program switches on besides the code is tutti_error.reason.
 */
#ifndef TUTTI_CODE_H
#define TUTTI_CODE_H

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_CODE_MAP(X)                                                                          \
    X(OK, 0)                                                                                       \
    X(CANCELLED, 1)                                                                                \
    X(UNKNOWN, 2)                                                                                  \
    X(INVALID_ARGUMENT, 3)                                                                         \
    X(DEADLINE_EXCEEDED, 4)                                                                        \
    X(NOT_FOUND, 5)                                                                                \
    X(ALREADY_EXISTS, 6)                                                                           \
    X(PERMISSION_DENIED, 7)                                                                        \
    X(RESOURCE_EXHAUSTED, 8)                                                                       \
    X(FAILED_PRECONDITION, 9)                                                                      \
    X(ABORTED, 10)                                                                                 \
    X(OUT_OF_RANGE, 11)                                                                            \
    X(UNIMPLEMENTED, 12)                                                                           \
    X(INTERNAL, 13)                                                                                \
    X(UNAVAILABLE, 14)                                                                             \
    X(DATA_LOSS, 15)                                                                               \
    X(UNAUTHENTICATED, 16)

typedef enum tutti_code {
#define TUTTI_CODE_ENUM(name, number) TUTTI_##name = number,
    TUTTI_CODE_MAP(TUTTI_CODE_ENUM)
#undef TUTTI_CODE_ENUM
} tutti_code;

/*
 * The name of a code, "FAILED_PRECONDITION" say. Any thread.
 *
 * Returns a static string; "CODE_<?>" for a number that is none of ours.
 */
TUTTI_API const char *tutti_code_name(tutti_code code);

#ifdef __cplusplus
}
#endif

#endif
