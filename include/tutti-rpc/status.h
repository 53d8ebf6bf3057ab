/*
 * Status: how a call ended, with the numbers and meanings of gRPC's status codes.
 *
 * Each function that can fail returns a tuttirpc_code and takes `tuttirpc_status *status` as its last
 * argument; NULL is fine. It writes the struct only if the code is not TUTTIRPC_OK, and then all of
 * it. The struct is the caller's and holds no pointers.
 *
 * Before 1.0 a minor version may add members to the structs of tutti-rpc, and has another soname then.
 */
#ifndef TUTTI_RPC_PUBLIC_STATUS_H
#define TUTTI_RPC_PUBLIC_STATUS_H

/* Marks what libtutti-rpc.so exports; everything else in it is hidden. */
#if defined(__GNUC__)
#define TUTTIRPC_API __attribute__((visibility("default")))
#define TUTTIRPC_FORMAT(text, values) __attribute__((format(printf, text, values)))
#else
#define TUTTIRPC_API
#define TUTTIRPC_FORMAT(text, values)
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tuttirpc_code {
    TUTTIRPC_OK = 0,
    TUTTIRPC_CANCELLED = 1,
    TUTTIRPC_UNKNOWN = 2,
    TUTTIRPC_INVALID_ARGUMENT = 3,
    TUTTIRPC_DEADLINE_EXCEEDED = 4,
    TUTTIRPC_NOT_FOUND = 5,
    TUTTIRPC_ALREADY_EXISTS = 6,
    TUTTIRPC_PERMISSION_DENIED = 7,
    TUTTIRPC_RESOURCE_EXHAUSTED = 8,
    TUTTIRPC_FAILED_PRECONDITION = 9,
    TUTTIRPC_ABORTED = 10,
    TUTTIRPC_OUT_OF_RANGE = 11,
    TUTTIRPC_UNIMPLEMENTED = 12,
    TUTTIRPC_INTERNAL = 13,
    TUTTIRPC_UNAVAILABLE = 14,
    TUTTIRPC_DATA_LOSS = 15,
    TUTTIRPC_UNAUTHENTICATED = 16,
} tuttirpc_code;

#define TUTTIRPC_REASON_MAX 40 /* bytes with the NUL; longer texts are cut */
#define TUTTIRPC_TEXT_MAX 1024

typedef struct tuttirpc_status {
    tuttirpc_code code;
    /* For programs: `reason` of the google.rpc.ErrorInfo that the server sent; "GRPC_STATUS" = it
     * sent none, or gRPC itself ended the call for a cause that this library does not know. */
    char reason[TUTTIRPC_REASON_MAX];
    /* For people: one sentence. */
    char text[TUTTIRPC_TEXT_MAX];
} tuttirpc_status;

/* "NOT_FOUND". A static string, never NULL; "CODE_<?>" for a number that gRPC does not have. */
TUTTIRPC_API const char *tuttirpc_code_name(tuttirpc_code code);

#ifdef __cplusplus
}
#endif

#endif
