/* What to do about an error, in the options of this command. */
#include "client/cli/util/advice.h"

#include <stdlib.h>
#include <string.h>

typedef struct piece {
    const char *reason; /* of the error; NULL = any */
    const char *words;  /* in its text; NULL = any */
    const char *advice;
} piece;

#define CLIENT_CERTIFICATE "--tls-cert FILE --tls-key FILE (TUTTI_TLS_CERT, TUTTI_TLS_KEY)"

/* The first that fits. */
static const piece pieces[] = {
    {NULL, "its certificate is for",
     "use an address that it names, or give the name to expect: --tls-name NAME (TUTTI_TLS_NAME)"},
    {NULL, "its certificate is not signed",
     "give the authority that signed it: --tls-ca FILE (TUTTI_TLS_CA)"},
    {NULL, "it wants a client certificate", "give one: " CLIENT_CERTIFICATE},
    {NULL, "perhaps it wants TLS",
     "for TLS give its authority: --tls-ca FILE (TUTTI_TLS_CA); a client certificate: "
     "" CLIENT_CERTIFICATE},
    {NULL, "does not speak TLS", "leave --tls-ca and TUTTI_TLS_CA out"},
    {"TOKEN_IN_PLAINTEXT", "would travel in plaintext", "--tls-ca FILE (TUTTI_TLS_CA)"},
    {"NO_TOKEN", NULL, "give one: --token-file FILE (TUTTI_TOKEN_FILE)"},
    {NULL, "there is no method /tutti.v1.CoordinatorService",
     "the address that was given as the coordinator's is not a coordinator: see --coordinator and "
     "TUTTI_COORDINATOR"},
};

/*
 * Some cases have no reason of their own and are told by words of their text. When such words
 * change elsewhere, this table must change too.
 */
const char *
cli_advice(const tutti_error *err)
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
