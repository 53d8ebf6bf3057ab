/* The options of certificates and tokens. */
#include "client/cli/options.h"

const cli_option cli_certs_options[] = {
    {"name", 0, "NAME", "make this certificate alone", NULL},
    {"address", 0, "LIST", "names of a server: localhost,10.0.0.1; of this machine when not said",
     NULL},
    {"grant", 0, "GRANT", "what a client may: client, agent@JOB#RANKS, admin; all when not said",
     NULL},
    {"days", 0, "N", "until it expires; 90 when it is not said", NULL},
    OPTION_END,
};

const cli_option cli_token_options[] = {
    {"role", 0, "ROLE", "client, agent or admin; client when it is not said", "client agent admin"},
    {"ranks", 0, "RANKS", "for these alone: 0-3,7", NULL},
    {"subject", 0, "NAME", "who it is; tutti when it is not said", NULL},
    {"issuer", 0, "NAME", "who says so", NULL},
    {"audience", 0, "NAME", "for whom; tutti when it is not said", NULL},
    {"expires", 0, "TIME", "how long it is good: 10m, 8h; 1h when it is not said", NULL},
    {"key-id", 0, "ID", "which key of a key set checks it", NULL},
    {"output", 'o', "FILE", "a new file for it; standard output when it is not said", "FILE"},
    OPTION_END,
};

const cli_option cli_token_key_options[] = {
    {"algorithm", 0, "NAME", "HS256: a secret; RS256, ES256: a pair; HS256 when it is not said",
     "HS256 RS256 ES256"},
    OPTION_END,
};
