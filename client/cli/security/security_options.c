/* The options of certificates and tokens. */
#include "client/cli/cli.h"
#include "client/cli/parse/options.h"
#include "client/cli/security/commands.h"

const cli_option cli_certs_options[] = {
    {"name", 0, "NAME", "make one certificate alone, of this name", NULL},
    {"address", 0, "LIST", "names of a server: localhost,10.0.0.1 (default: of this machine)",
     NULL},
    {"grant", 0, "GRANT", "what a client may do: client, agent@JOB#RANKS, admin (default: all)",
     NULL},
    {"days", 0, "N", "days until the certificates expire (default: 90)", NULL},
    OPTION_END,
};

const cli_option cli_token_options[] = {
    {"role", 0, "ROLE", "client, agent or admin (default: client)", "client agent admin"},
    {"ranks", 0, "RANKS", "allow these ranks alone: 0-3,7", NULL},
    {"subject", 0, "NAME", "the token's subject, \"sub\": whose token it is (default: tutti)",
     NULL},
    {"issuer", 0, "NAME", "the token's issuer, \"iss\": who made it", NULL},
    {"audience", 0, "NAME", "the token's audience, \"aud\": which servers take it (default: tutti)",
     NULL},
    {"expires", 0, "TIME", "how long the token is valid: 10m, 8h (default: 1h)", NULL},
    {"key-id", 0, "ID", "the token's key id, \"kid\": which key of a key set checks it", NULL},
    {"output", 'o', "FILE", "new file for the token (default: standard output)", "FILE"},
    OPTION_END,
};

const cli_option cli_token_key_options[] = {
    {"algorithm", 0, "NAME", "HS256: a secret; RS256, ES256: a pair (default: HS256)",
     "HS256 RS256 ES256"},
    OPTION_END,
};
