/* What is in a certificate, for people. */
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "auth/certs.h"
#include "base/data/utf8.h"
#include "base/error/fail.h"
#include "base/os/file.h"

#define PEM_BYTES_MAX (1 << 20)

/*
 * What a BIO holds, as one line and without control characters: what is in a certificate comes
 * from somebody else, and it must not play with the terminal.
 */
static void
take_cert(BIO *bio, char *ret_text, size_t size)
{
    const int length = bio == NULL ? 0 : BIO_read(bio, ret_text, (int)size - 1);
    size_t i;

    ret_text[length > 0 ? length : 0] = '\0';
    i = tutti_utf8_clean(ret_text);
    while (i > 0 && ret_text[i - 1] == ' ') {
        ret_text[--i] = '\0';
    }
}

static void
show_name(const X509_NAME *name, char *ret_text, size_t size)
{
    BIO *bio = BIO_new(BIO_s_mem());

    if (bio != NULL) {
        (void)X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253);
    }
    take_cert(bio, ret_text, size);
    BIO_free(bio);
}

static void
show_time(const ASN1_TIME *moment, char *ret_text, size_t size)
{
    BIO *bio = BIO_new(BIO_s_mem());

    if (bio != NULL) {
        (void)ASN1_TIME_print(bio, moment);
    }
    take_cert(bio, ret_text, size);
    BIO_free(bio);
}

static void
show_names(X509 *certificate, char *ret_text, size_t size)
{
    const int at = X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1);
    BIO *bio = BIO_new(BIO_s_mem());

    if (bio != NULL && at >= 0) {
        (void)X509V3_EXT_print(bio, X509_get_ext(certificate, at), 0, 0);
    }
    take_cert(bio, ret_text, size);
    BIO_free(bio);
}

tutti_code
tutti_auth_certificate_show(const char *path, tutti_auth_shown *ret, tutti_error *err)
{
    char *pem = NULL;
    BIO *bio;
    X509 *certificate;
    int days = 0;
    int seconds = 0;

    TUTTI_TRY(tutti_file_read(path, PEM_BYTES_MAX, &pem, NULL, err));
    bio = BIO_new_mem_buf(pem, -1);
    certificate = bio == NULL ? NULL : PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    free(pem);
    ERR_clear_error();
    if (certificate == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "%s: no certificate in it", path);
    }
    show_name(X509_get_subject_name(certificate), ret->subject, sizeof(ret->subject));
    show_name(X509_get_issuer_name(certificate), ret->issuer, sizeof(ret->issuer));
    show_names(certificate, ret->names, sizeof(ret->names));
    show_time(X509_get0_notBefore(certificate), ret->begins, sizeof(ret->begins));
    show_time(X509_get0_notAfter(certificate), ret->ends, sizeof(ret->ends));
    (void)ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(certificate));
    /* rounded down: a certificate that ended an hour ago has -1 days left */
    ret->days_left = days - (seconds < 0 ? 1 : 0);
    X509_free(certificate);
    return TUTTI_OK;
}
