/*
 * Certificates and keys from PEM files. They are parsed by OpenSSL only to be checked, with an
 * error that names the file and what is wrong; gRPC gets the text. gRPC itself would take a bad
 * pair without a word and refuse every connection, or abort. Any thread; OpenSSL's error queue is
 * cleared behind each step, because gRPC reads it, too.
 */
#include "rpc/util/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/file.h"

/* Without it OpenSSL would ask for a passphrase on the terminal. */
static int
no_passphrase(char *buffer, int size, int writing, void *arg)
{
    (void)buffer;
    (void)size;
    (void)writing;
    (void)arg;
    return -1;
}

/* The next certificate of a PEM text; NULL when there is none. */
static X509 *
next_certificate(BIO *bio)
{
    X509 *certificate = bio == NULL ? NULL : PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);

    ERR_clear_error();
    return certificate;
}

static X509 *
parse_certificate(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *certificate = next_certificate(bio);

    BIO_free(bio);
    return certificate;
}

static EVP_PKEY *
parse_key(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key = bio == NULL ? NULL : PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);

    BIO_free(bio);
    ERR_clear_error();
    return key;
}

static tutti_code
fail_without(const char *path, const char *pem, const char *what, tutti_error *err)
{
    const bool is_pem = strstr(pem, "-----BEGIN ") != NULL;

    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS", "%s: no %s in it%s", path,
                          what, is_pem ? "" : ", it is no PEM file: -----BEGIN ... is wanted");
}

/* "Nov 21 16:19:54 2026 GMT" */
static void
print_time(const ASN1_TIME *moment, char *ret_text, size_t size)
{
    BIO *bio = BIO_new(BIO_s_mem());
    int length = 0;

    if (bio != NULL && ASN1_TIME_print(bio, moment) == 1) {
        length = BIO_read(bio, ret_text, (int)size - 1);
    }
    ret_text[length > 0 ? length : 0] = '\0';
    BIO_free(bio);
}

static tutti_code
check_time(const char *path, const X509 *certificate, tutti_error *err)
{
    const ASN1_TIME *end = X509_get0_notAfter(certificate);
    const ASN1_TIME *start = X509_get0_notBefore(certificate);
    const bool expired = X509_cmp_current_time(end) < 0;
    char text[64];

    if (!expired && X509_cmp_current_time(start) < 0) {
        return TUTTI_OK;
    }
    print_time(expired ? end : start, text, sizeof(text));
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "CERTIFICATE_EXPIRED",
                          "%s: the certificate %s %s, by this machine's clock", path,
                          expired ? "has expired on" : "is not valid before", text);
}

static tutti_code
check_certificate(const char *path, const char *pem, tutti_error *err)
{
    X509 *certificate = parse_certificate(pem);
    tutti_code code;

    if (certificate == NULL) {
        return fail_without(path, pem, "certificate", err);
    }
    code = check_time(path, certificate, err);
    X509_free(certificate);
    return code;
}

/* Of several authorities one may have expired while the next is there already. */
static tutti_code
check_authorities(const char *path, const char *pem, tutti_error *err)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *certificate = next_certificate(bio);
    tutti_code code =
        certificate == NULL ? fail_without(path, pem, "certificate", err) : TUTTI_INVALID_ARGUMENT;

    while (certificate != NULL && code != TUTTI_OK) {
        code = check_time(path, certificate, err);
        X509_free(certificate);
        certificate = next_certificate(bio);
    }
    X509_free(certificate);
    BIO_free(bio);
    return code;
}

static tutti_code
check_pair(const char *cert_path, const char *key_path, const rpc_pems *pems, tutti_error *err)
{
    X509 *certificate = parse_certificate(pems->cert);
    EVP_PKEY *key = parse_key(pems->key);
    const bool fits =
        certificate != NULL && key != NULL && X509_check_private_key(certificate, key) == 1;
    const bool found = key != NULL;

    X509_free(certificate);
    EVP_PKEY_free(key);
    ERR_clear_error();
    if (!found) {
        return fail_without(key_path, pems->key, "private key without a passphrase", err);
    }
    if (!fits) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "the key in %s is not that of the certificate in %s", key_path,
                              cert_path);
    }
    return TUTTI_OK;
}

static bool
is_given(const char *path)
{
    return path != NULL && path[0] != '\0';
}

static tutti_code
read_all(const char *cert_path, const char *key_path, const char *ca_path, rpc_pems *pems,
         tutti_error *err)
{
    if (is_given(cert_path)) {
        TUTTI_TRY(tutti_file_read(cert_path, TUTTI_RPC_PEM_MAX, &pems->cert, NULL, err));
    }
    if (is_given(key_path)) {
        TUTTI_TRY(tutti_file_read(key_path, TUTTI_RPC_PEM_MAX, &pems->key, NULL, err));
    }
    if (is_given(ca_path)) {
        TUTTI_TRY(tutti_file_read(ca_path, TUTTI_RPC_PEM_MAX, &pems->ca, NULL, err));
    }
    return TUTTI_OK;
}

tutti_code
rpc_pems_read(const char *cert_path, const char *key_path, const char *ca_path, rpc_pems *ret_pems,
              tutti_error *err)
{
    rpc_pems pems = {0};
    tutti_code code = read_all(cert_path, key_path, ca_path, &pems, err);

    if (code == TUTTI_OK && pems.cert != NULL) {
        code = check_certificate(cert_path, pems.cert, err);
    }
    if (code == TUTTI_OK && pems.ca != NULL) {
        code = check_authorities(ca_path, pems.ca, err);
    }
    if (code == TUTTI_OK && pems.cert != NULL && pems.key != NULL) {
        code = check_pair(cert_path, key_path, &pems, err);
    }
    if (code != TUTTI_OK) {
        rpc_pems_fini(&pems);
        return code;
    }
    *ret_pems = pems;
    return TUTTI_OK;
}

void
rpc_pems_fini(rpc_pems *pems)
{
    if (pems->key != NULL) {
        OPENSSL_cleanse(pems->key, strlen(pems->key));
    }
    free(pems->cert);
    free(pems->key);
    free(pems->ca);
    *pems = (rpc_pems){0};
}
