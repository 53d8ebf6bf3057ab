/* What to do about a coordinator that this agent cannot join: which option of ours it is about. */
#include <string.h>

#include "server/agent/member/member_private.h"

typedef struct piece {
    const char *reason; /* of the error; NULL = any */
    const char *words;  /* in its text; NULL = any */
    const char *advice;
} piece;

/* The first that fits. */
static const piece pieces[] = {
    {"UNREACHABLE", "its certificate is for",
     "name it as its certificate does (--coordinator), or say that name (--coordinator-name)"},
    {"UNREACHABLE", "its certificate is not signed",
     "give the authority that signed it (--coordinator-ca)"},
    {"UNREACHABLE", "it wants a client certificate",
     "give one (--coordinator-cert, --coordinator-key)"},
    {"UNREACHABLE", "perhaps it wants TLS",
     "see --coordinator-ca for TLS, --coordinator-cert and --coordinator-key for a certificate"},
    {"UNREACHABLE", "does not speak TLS", "leave --coordinator-ca out"},
    {"UNREACHABLE", "nothing listens there",
     "start tutti-coordinator there, or say where it is (--coordinator)"},
    {"UNREACHABLE", "there is no such socket",
     "start tutti-coordinator there, or say where it is (--coordinator)"},
    {"NO_TOKEN", NULL, "give one (--coordinator-token)"},
    {NULL, "there is no method /tutti.v1.CoordinatorService",
     "this is no coordinator: say where it is (--coordinator)"},
};

const char *
agent_join_advice(const tutti_error *err)
{
    size_t i;

    for (i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        if ((pieces[i].reason == NULL || strcmp(err->reason, pieces[i].reason) == 0) &&
            (pieces[i].words == NULL || strstr(err->text, pieces[i].words) != NULL)) {
            return pieces[i].advice;
        }
    }
    return NULL;
}
