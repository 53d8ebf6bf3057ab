/*
 * A look at a server's certificate, to tell a person whose it is when it is not for the name that
 * was asked for. Runs on the caller's thread after a call has failed, and blocks until its
 * deadline at most, except for getaddrinfo, which has a timeout of its own. Nothing is verified
 * and nothing is sent beyond the handshake; what the certificate says is shown as text only.
 */
#include "rpc/message/peek.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error/text.h"
#include "base/os/clock.h"

#define NAMES_SHOWN 8
#define NAME_BYTES_SHOWN 120
#define PIECE_BYTES 16384

/* ------------------------------------------------------------------------------ connecting */

static bool
wait_for_field(int descriptor, short events, uint64_t deadline_ns)
{
    struct pollfd wanted = {.fd = descriptor, .events = events};
    const uint64_t now = tutti_clock_ns();

    return now < deadline_ns &&
           poll(&wanted, 1, (int)((deadline_ns - now) / TUTTI_NS_PER_MS) + 1) > 0;
}

/* -1 = it cannot be reached in time. */
static int
connect_to(const struct sockaddr *to, socklen_t size, uint64_t deadline_ns)
{
    const int descriptor = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int failed = 0;
    socklen_t failed_size = sizeof(failed);

    if (descriptor < 0) {
        return -1;
    }
    if (connect(descriptor, to, size) != 0 &&
        (errno != EINPROGRESS || !wait_for_field(descriptor, POLLOUT, deadline_ns) ||
         getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &failed, &failed_size) != 0 || failed != 0)) {
        (void)close(descriptor);
        return -1;
    }
    return descriptor;
}

static int
connect_address(const tutti_address *address, uint64_t deadline_ns)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct sockaddr_un near = {.sun_family = AF_UNIX};
    struct addrinfo *found = NULL;
    const struct addrinfo *one;
    char port[8];
    int descriptor = -1;

    if (address->path[0] != '\0') {
        (void)snprintf(near.sun_path, sizeof(near.sun_path), "%.107s", address->path);
        return connect_to((const struct sockaddr *)&near, sizeof(near), deadline_ns);
    }
    (void)snprintf(port, sizeof(port), "%u", address->port);
    if (getaddrinfo(address->host, port, &hints, &found) != 0) {
        return -1;
    }
    for (one = found; one != NULL && descriptor < 0; one = one->ai_next) {
        descriptor = connect_to(one->ai_addr, one->ai_addrlen, deadline_ns);
    }
    freeaddrinfo(found);
    return descriptor;
}

/* ------------------------------------------------------------------------------ the handshake */

/* What OpenSSL wants to say. It does not write by itself: that could raise SIGPIPE. */
static bool
send_all(int descriptor, BIO *said, uint64_t deadline_ns)
{
    char piece[PIECE_BYTES];
    int size;

    while ((size = BIO_read(said, piece, sizeof(piece))) > 0) {
        int done = 0;

        while (done < size) {
            const ssize_t sent =
                send(descriptor, piece + done, (size_t)(size - done), MSG_NOSIGNAL);

            if (sent < 0 &&
                (errno != EAGAIN || !wait_for_field(descriptor, POLLOUT, deadline_ns))) {
                return false;
            }
            done += sent > 0 ? (int)sent : 0;
        }
    }
    return true;
}

static bool
hear_some(int descriptor, BIO *heard, uint64_t deadline_ns)
{
    char piece[PIECE_BYTES];
    ssize_t size;

    if (!wait_for_field(descriptor, POLLIN, deadline_ns)) {
        return false;
    }
    size = recv(descriptor, piece, sizeof(piece), 0);
    return size > 0 && BIO_write(heard, piece, (int)size) == (int)size;
}

/* Until its certificate is there, or never will be. What comes behind is not waited for. */
static X509 *
shake_hands(SSL *tls, int descriptor, uint64_t deadline_ns)
{
    BIO *heard = SSL_get_rbio(tls);
    BIO *said = SSL_get_wbio(tls);
    X509 *certificate = NULL;
    bool more = true;

    SSL_set_connect_state(tls);
    while (certificate == NULL && more) {
        const int done = SSL_do_handshake(tls);

        certificate = SSL_get1_peer_certificate(tls);
        more = done != 1 && SSL_get_error(tls, done) == SSL_ERROR_WANT_READ &&
               send_all(descriptor, said, deadline_ns) && hear_some(descriptor, heard, deadline_ns);
    }
    return certificate;
}

/* Nothing is verified: the names are shown to a person, and nothing is sent. [out, owned] */
static X509 *
fetch_field(int descriptor, uint64_t deadline_ns)
{
    static const unsigned char http2[] = {2, 'h', '2'};
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *tls = context == NULL ? NULL : SSL_new(context);
    BIO *heard = BIO_new(BIO_s_mem());
    BIO *said = BIO_new(BIO_s_mem());
    X509 *certificate = NULL;

    if (tls != NULL && heard != NULL && said != NULL) {
        SSL_set_bio(tls, heard, said); /* they are its own from now on */
        heard = said = NULL;
        SSL_set_verify(tls, SSL_VERIFY_NONE, NULL);
        (void)SSL_set_alpn_protos(tls, http2, sizeof(http2));
        certificate = shake_hands(tls, descriptor, deadline_ns);
    }
    BIO_free(heard);
    BIO_free(said);
    SSL_free(tls);
    SSL_CTX_free(context);
    /* OpenSSL keeps errors for each thread; gRPC would find ours. */
    ERR_clear_error();
    return certificate;
}

/* ------------------------------------------------------------------------------ names */

/* A stranger may have written it: what is not printable is not shown. */
static void
write_name(const unsigned char *bytes, size_t size, char ret[NAME_BYTES_SHOWN + 1])
{
    size_t i;

    for (i = 0; i < size && i < NAME_BYTES_SHOWN; i++) {
        ret[i] = (char)(bytes[i] > ' ' && bytes[i] < 0x7f ? bytes[i] : '?');
    }
    ret[i] = '\0';
}

/* False: it is neither a host's name nor an address. */
static bool
read_name(const GENERAL_NAME *name, char ret[NAME_BYTES_SHOWN + 1])
{
    int kind = 0;
    const ASN1_STRING *value = GENERAL_NAME_get0_value(name, &kind);
    const unsigned char *bytes;
    int size;

    if (kind != GEN_DNS && kind != GEN_IPADD) {
        return false;
    }
    bytes = ASN1_STRING_get0_data(value);
    size = ASN1_STRING_length(value);
    if (kind == GEN_DNS) {
        write_name(bytes, (size_t)size, ret);
        return size > 0;
    }
    return (size == 4 || size == 16) &&
           inet_ntop(size == 4 ? AF_INET : AF_INET6, bytes, ret, NAME_BYTES_SHOWN) != NULL;
}

static size_t
add_names(X509 *certificate, tutti_text *text)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    char name[NAME_BYTES_SHOWN + 1];
    size_t count = 0;
    int i;

    for (i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        if (read_name(sk_GENERAL_NAME_value(names, i), name) && count++ < NAMES_SHOWN) {
            tutti_text_add(text, "%s%s", count > 1 ? ", " : "", name);
        }
    }
    if (count > NAMES_SHOWN) {
        tutti_text_add(text, " and %zu more", count - NAMES_SHOWN);
    }
    GENERAL_NAMES_free(names);
    return count;
}

bool
rpc_peek_names(const tutti_address *address, uint64_t deadline_ns, char *ret_names, size_t size)
{
    tutti_text text = tutti_text_in(ret_names, size);
    const int descriptor = connect_address(address, deadline_ns);
    X509 *certificate = descriptor < 0 ? NULL : fetch_field(descriptor, deadline_ns);
    const size_t count = certificate == NULL ? 0 : add_names(certificate, &text);

    X509_free(certificate);
    if (descriptor >= 0) {
        (void)close(descriptor);
    }
    return count > 0;
}
