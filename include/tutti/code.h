/*
 * Codes: how a call ended, as a number for programs.
 *
 *     switch (tutti_tensor_delete(client, "weights", &err)) {
 *     case TUTTI_OK:
 *     case TUTTI_NOT_FOUND:     // it was deleted before
 *         break;
 *     case TUTTI_UNAVAILABLE:   // the agent has gone
 *         reconnect();
 *         break;
 *     default:
 *         fprintf(stderr, "%s: %s\n", tutti_code_name(err.code), err.text);
 *     }
 *
 * The numbers are those of gRPC's status codes, so a code crosses the wire unchanged. A code says
 * which kind of failure it is. tutti_error.reason (tutti/error.h) is a word that says which one;
 * tutti_error.text says it in a sentence. docs/errors.md lists all reasons.
 *
 * Threads: everything here may be used on any thread, at any time, also without a client.
 *
 * Caveats
 *
 * - One code has several reasons: FAILED_PRECONDITION is a restarted agent's handle (STALE_HANDLE)
 *   as well as ranks that called different ops (OP_MISMATCH). How it looks: a program that looks at
 *   the code alone repeats a call that cannot succeed. What to do: look at the code first, then at
 *   the reason, and never at the text.
 * - A newer server can send a number that this library does not know. Such a number becomes
 *   TUTTI_UNKNOWN.
 */
#ifndef TUTTI_CODE_H
#define TUTTI_CODE_H

/*
 * TUTTI_API marks what libtutti.so exports; everything else in the library is hidden.
 */
#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * All codes: X(NAME, number). A program can expand it with a macro of its own, to make a table.
 *
 *   OK                   the call has done what it was asked to do; the outputs are written
 *   CANCELLED            the caller of some rank gave the call up, or on_progress returned false.
 *                        Call again if it is still wanted
 *   UNKNOWN              the server sent a code that is none of these. Report it
 *   INVALID_ARGUMENT     the call is wrong, whatever the state of the server. Correct the program
 *   DEADLINE_EXCEEDED    the time was over; of an op the text names the ranks that had not called
 *                        it. Look with `tutti stall` what they do, or give a longer timeout
 *   NOT_FOUND            no object has that name or handle. Create it, or use another name
 *   ALREADY_EXISTS       another object has that name. Delete it, or use another name
 *   PERMISSION_DENIED    the caller is known and may not do this. Use a token or certificate with
 *                        the role, job and rank that the text names
 *   RESOURCE_EXHAUSTED   a limit was reached; the text names it, its value and its option. Free
 *                        something, or raise the limit. NO_MEMORY, SYSTEM_LIMIT: this process had
 *                        no memory or no thread for the call
 *   FAILED_PRECONDITION  the call is not possible in the present state. Look at the reason
 *   ABORTED              another call or process has taken the place of this one, or a part of the
 *                        call failed elsewhere. Look at the reason
 *   OUT_OF_RANGE         a number is outside of its range. Use one in the range that the text names
 *   UNIMPLEMENTED        the server has no such method, or cannot do this on such tensors. Compare
 *                        address and versions
 *   INTERNAL             a defect of Tutti, of a library or of a device. Report it with the log
 *   UNAVAILABLE          a rank or a process is not there, or is leaving. Try again when it is back
 *   DATA_LOSS            an answer or stored data makes no sense. Compare the versions; restore a
 *                        copy
 *   UNAUTHENTICATED      the call has no token, or a wrong one. Give a valid one (token_file)
 */
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

/* TUTTI_OK, TUTTI_CANCELLED, ... TUTTI_UNAUTHENTICATED: a constant for each row of the map. */
typedef enum tutti_code {
#define TUTTI_CODE_ENUM(name, number) TUTTI_##name = number,
    TUTTI_CODE_MAP(TUTTI_CODE_ENUM)
#undef TUTTI_CODE_ENUM
} tutti_code;

/*
 * The name of a code, without the prefix: "FAILED_PRECONDITION".
 *
 * [in] code  any number
 *
 * Returns a static string, never NULL; "CODE_<?>" for a number that is not in the map.
 */
TUTTI_API const char *tutti_code_name(tutti_code code);

#ifdef __cplusplus
}
#endif

#endif
