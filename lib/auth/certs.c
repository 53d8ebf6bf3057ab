/*
 * Making an authority and the certificates that it signs, for people and tests. A server reads
 * such files through gRPC and not through this code.
 */
#include "auth/certs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/asn1.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auth/grant.h"
#include "auth/sign.h"
#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/file.h"

#define PATH_BYTES 4096
#define BACKDATE_S (5 * 60) /* clocks differ */

/* An authority, or the certificate that is being made. */
typedef struct pair {
    X509 *certificate;
    EVP_PKEY *key;
} pair;

/*
 * OpenSSL keeps a queue of errors per thread. It is emptied here, so that a later call does not
 * report ours.
 */
static void
fini_cert(pair *self)
{
    X509_free(self->certificate);
    EVP_PKEY_free(self->key);
    ERR_clear_error();
}

static tutti_code
join_cert(const char *folder, const char *name, const char *end, char ret_path[PATH_BYTES],
          tutti_error *err)
{
    const int size = snprintf(ret_path, PATH_BYTES, "%s/%s%s", folder, name, end);

    return size > 0 && size < PATH_BYTES
               ? TUTTI_OK
               : TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                                "the path of %.64s%s is too long", name, end);
}

/* ------------------------------------------------------------------------------ certificates */

static tutti_code
fail_openssl(tutti_error *err, const char *what)
{
    char words[256];

    ERR_error_string_n(ERR_get_error(), words, sizeof(words));
    ERR_clear_error();
    return TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "CRYPTO_FAILED", "OpenSSL could not make %s: %s",
                          what, words);
}

/*
 * A random number of 127 bits: no list of numbers has to be kept, and nobody can guess the next
 * one.
 */
static bool
put_serial(X509 *certificate)
{
    BIGNUM *number = BN_new();
    const bool good = number != NULL && BN_rand(number, 127, BN_RAND_TOP_ONE, 0) == 1 &&
                      BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != NULL;

    BN_free(number);
    return good;
}

static bool
put_extension(X509 *certificate, X509 *issuer, int kind, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;
    bool good;

    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    good = extension != NULL && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

/*
 * The name is for people. What a certificate allows, and for which hosts it is good, is in its
 * alternative names.
 */
static bool
put_name(X509 *certificate, const char *name)
{
    X509_NAME *subject = X509_get_subject_name(certificate);

    return X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1,
                                      -1, 0) == 1;
}

/*
 * Begins a certificate, without what makes it an authority or not. It is good from five minutes
 * ago: a machine whose clock is a little behind must not find it to be of the future.
 */
static bool
begin_cert(pair *self, const char *name, unsigned days)
{
    self->key = EVP_EC_gen("P-256");
    self->certificate = X509_new();
    return self->key != NULL && self->certificate != NULL &&
           X509_set_version(self->certificate, X509_VERSION_3) == 1 &&
           put_serial(self->certificate) &&
           X509_gmtime_adj(X509_getm_notBefore(self->certificate), -BACKDATE_S) != NULL &&
           X509_time_adj_ex(X509_getm_notAfter(self->certificate), (int)days, 0, NULL) != NULL &&
           put_name(self->certificate, name) && X509_set_pubkey(self->certificate, self->key) == 1;
}

/*
 * Both files are new or none is. The text of the certificate is made before the key is written,
 * so only the disk can still leave a key without its certificate; the key is then removed.
 */
static tutti_code
write_pair(const char *folder, const char *name, pair *self, tutti_error *err)
{
    char path[PATH_BYTES];
    BIO *bio = BIO_new(BIO_s_mem());
    char *data = NULL;
    tutti_code code = join_cert(folder, name, ".key", path, err);

    if (bio == NULL || PEM_write_bio_X509(bio, self->certificate) != 1) {
        code = TUTTI_FAIL_MEMORY(err, "no memory for a certificate");
    }
    code = code == TUTTI_OK ? auth_write_private(path, self->key, err) : code;
    code = code == TUTTI_OK ? join_cert(folder, name, ".pem", path, err) : code;
    if (code == TUTTI_OK) {
        const long size = BIO_get_mem_data(bio, &data);

        code = auth_write_new(path, data, size > 0 ? (size_t)size : 0, 0644, err);
        if (code != TUTTI_OK && join_cert(folder, name, ".key", path, NULL) == TUTTI_OK) {
            (void)unlink(path); /* half a pair is of no use, and in the way the next time */
        }
    }
    BIO_free(bio);
    return code;
}

/*
 * A path length of 0 means that this authority signs ends only: a certificate of ours cannot be
 * an authority itself.
 */
tutti_code
tutti_auth_authority_make(const char *folder, unsigned days, tutti_error *err)
{
    pair self = {NULL, NULL};
    tutti_code code;

    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not make %s", folder);
    }
    if (begin_cert(&self, "tutti authority", days) &&
        X509_set_issuer_name(self.certificate, X509_get_subject_name(self.certificate)) == 1 &&
        put_extension(self.certificate, self.certificate, NID_basic_constraints,
                      "critical,CA:TRUE,pathlen:0") &&
        put_extension(self.certificate, self.certificate, NID_key_usage,
                      "critical,keyCertSign,cRLSign") &&
        put_extension(self.certificate, self.certificate, NID_subject_key_identifier, "hash") &&
        X509_sign(self.certificate, self.key, EVP_sha256()) > 0) {
        code = write_pair(folder, "ca", &self, err);
    } else {
        code = fail_openssl(err, "an authority");
    }
    fini_cert(&self);
    return code;
}

/* ------------------------------------------------------------------------------ those it signs */

/*
 * Both parts are read before anything is said, so that the message can be one: what is needed is
 * a pair that belongs together.
 */
static tutti_code
read_authority(const char *folder, pair *ret, tutti_error *err)
{
    char path[PATH_BYTES];
    BIO *bio = NULL;
    tutti_code code = join_cert(folder, "ca", ".pem", path, err);

    if (code == TUTTI_OK && (bio = BIO_new_file(path, "r")) != NULL) {
        ret->certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    }
    BIO_free(bio);
    bio = NULL;
    code = code == TUTTI_OK ? join_cert(folder, "ca", ".key", path, err) : code;
    if (code == TUTTI_OK && (bio = BIO_new_file(path, "r")) != NULL) {
        ret->key = PEM_read_bio_PrivateKey(bio, NULL, NULL, (void *)(uintptr_t) "");
    }
    BIO_free(bio);
    ERR_clear_error();
    if (code == TUTTI_OK && (ret->certificate == NULL || ret->key == NULL ||
                             X509_check_private_key(ret->certificate, ret->key) != 1)) {
        code = TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_AUTHORITY",
                              "%s holds no authority: need ca.pem and ca.key that belong together",
                              folder);
    }
    if (code == TUTTI_OK && X509_cmp_current_time(X509_get0_notAfter(ret->certificate)) < 0) {
        code = TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_AUTHORITY",
                              "the authority in %s has expired: make a new one in another folder",
                              folder);
    }
    return code;
}

/* [in, moved] value  freed when it cannot be added */
static bool
push_name(GENERAL_NAMES *names, int kind, ASN1_STRING *value)
{
    GENERAL_NAME *name = GENERAL_NAME_new();

    if (name == NULL || value == NULL) {
        GENERAL_NAME_free(name);
        ASN1_STRING_free(value);
        return false;
    }
    GENERAL_NAME_set0_value(name, kind, value);
    if (sk_GENERAL_NAME_push(names, name) == 0) {
        GENERAL_NAME_free(name);
        return false;
    }
    return true;
}

static bool
push_text(GENERAL_NAMES *names, int kind, const char *text)
{
    ASN1_IA5STRING *value = ASN1_IA5STRING_new();

    if (value != NULL && ASN1_STRING_set(value, text, -1) != 1) {
        ASN1_IA5STRING_free(value);
        value = NULL;
    }
    return push_name(names, kind, value);
}

static bool
is_host_name(const char *text)
{
    return text[0] != '\0' && text[0] != '.' && strlen(text) < 254 &&
           text[strspn(
               text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-*_")] == '\0';
}

/*
 * An address is tried first: "10.0.0.1" would be a host name as well, and clients compare
 * addresses with addresses only.
 */
static tutti_code
push_address(GENERAL_NAMES *names, const char *text, tutti_error *err)
{
    ASN1_OCTET_STRING *number = a2i_IPADDRESS(text);
    bool good;

    if (number == NULL && !is_host_name(text)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
            "address \"%.64s\": need a host name or an IP address, without a port", text);
    }
    good = number != NULL ? push_name(names, GEN_IPADD, number) : push_text(names, GEN_DNS, text);
    return good ? TUTTI_OK : fail_openssl(err, "a name");
}

/* The grant is parsed only to see that it is right. What goes into the certificate is its text. */
static tutti_code
push_names(GENERAL_NAMES *names, const tutti_auth_certificate *wish, tutti_error *err)
{
    char uri[256];
    tutti_auth_grant grant;
    size_t i;

    for (i = 0; i < wish->address_count; i++) {
        TUTTI_TRY(push_address(names, wish->addresses[i], err));
    }
    if (wish->grant != NULL) {
        TUTTI_TRY(tutti_auth_grant_parse(wish->grant, &grant, err));
    }
    if (wish->grant != NULL) {
        (void)snprintf(uri, sizeof(uri), "tutti:%.240s", wish->grant);
        TUTTI_TRY(strlen(wish->grant) <= 240 && push_text(names, GEN_URI, uri)
                      ? TUTTI_OK
                      : TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                                       "\"%.64s\" is too long", wish->grant));
    }
    return TUTTI_OK;
}

static tutti_code
put_names(X509 *certificate, const tutti_auth_certificate *wish, tutti_error *err)
{
    GENERAL_NAMES *names = sk_GENERAL_NAME_new_null();
    tutti_code code = names == NULL ? TUTTI_FAIL_MEMORY(err, "no memory for a certificate")
                                    : push_names(names, wish, err);

    if (code == TUTTI_OK && sk_GENERAL_NAME_num(names) > 0 &&
        X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) != 1) {
        code = fail_openssl(err, "names");
    }
    GENERAL_NAMES_free(names);
    return code;
}

/* It must not outlive the authority: nobody would believe it then. */
static bool
put_end(X509 *certificate, const X509 *authority)
{
    return ASN1_TIME_compare(X509_get0_notAfter(certificate), X509_get0_notAfter(authority)) <= 0 ||
           X509_set1_notAfter(certificate, X509_get0_notAfter(authority)) == 1;
}

/*
 * A certificate with addresses is for a server, which is a client of other servers as well. One
 * without is for a client only.
 */
static tutti_code
make_leaf(pair *self, pair *authority, const tutti_auth_certificate *wish, tutti_error *err)
{
    X509 *issuer = authority->certificate;

    if (!begin_cert(self, wish->name, wish->days) || !put_end(self->certificate, issuer) ||
        X509_set_issuer_name(self->certificate, X509_get_subject_name(issuer)) != 1 ||
        !put_extension(self->certificate, issuer, NID_basic_constraints, "critical,CA:FALSE") ||
        !put_extension(self->certificate, issuer, NID_key_usage, "critical,digitalSignature") ||
        !put_extension(self->certificate, issuer, NID_ext_key_usage,
                       wish->address_count > 0 ? "serverAuth,clientAuth" : "clientAuth") ||
        !put_extension(self->certificate, issuer, NID_authority_key_identifier, "keyid")) {
        return fail_openssl(err, "a certificate");
    }
    TUTTI_TRY(put_names(self->certificate, wish, err));
    if (X509_sign(self->certificate, authority->key, EVP_sha256()) <= 0) {
        TUTTI_TRY(fail_openssl(err, "a signature"));
    }
    return TUTTI_OK;
}

tutti_code
tutti_auth_certificate_make(const char *folder, const tutti_auth_certificate *wish,
                            tutti_error *err)
{
    pair authority = {NULL, NULL};
    pair self = {NULL, NULL};
    tutti_code code = tutti_check_name(wish->name, "certificate", err);

    if (code == TUTTI_OK && (strchr(wish->name, '/') != NULL || strcmp(wish->name, "ca") == 0)) {
        code = TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
            "certificate name \"%s\": need a name that a file may have, other than ca", wish->name);
    }
    code = code == TUTTI_OK ? read_authority(folder, &authority, err) : code;
    code = code == TUTTI_OK ? make_leaf(&self, &authority, wish, err) : code;
    code = code == TUTTI_OK ? write_pair(folder, wish->name, &self, err) : code;
    fini_cert(&authority);
    fini_cert(&self);
    return code;
}
