/* Files of keys and certificates: new ones, and readable for whom they should be. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <unistd.h>

#include "auth/sign.h"
#include "base/error/fail.h"

static tutti_code
write_all_file(int descriptor, const char *path, const char *data, size_t size, tutti_error *err)
{
    while (size > 0) {
        const ssize_t written = write(descriptor, data, size);

        if (written < 0 && errno != EINTR) {
            return TUTTI_FAIL_ERRNO(err, errno, "could not write %s", path);
        }
        data += written < 0 ? 0 : written;
        size -= written < 0 ? 0 : (size_t)written;
    }
    return TUTTI_OK;
}

/*
 * O_EXCL and O_NOFOLLOW: nothing is written over, and a link that somebody has put there is not
 * followed. The mode is set as the file is made, so there is no moment in which others can read
 * it. A file that could not be completed is removed.
 */
tutti_code
auth_write_new(const char *path, const void *data, size_t size, unsigned mode, tutti_error *err)
{
    const int descriptor =
        open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, (mode_t)mode);
    tutti_code code;

    if (descriptor < 0 && errno == EEXIST) {
        return TUTTI_FAIL_FOR(err, TUTTI_ALREADY_EXISTS, "FILE_EXISTS",
                              "%s is there already: remove it, or take another name", path);
    }
    if (descriptor < 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not make %s", path);
    }
    code = write_all_file(descriptor, path, data, size, err);
    if (close(descriptor) != 0 && code == TUTTI_OK) {
        code = TUTTI_FAIL_ERRNO(err, errno, "could not write %s", path);
    }
    if (code != TUTTI_OK) {
        (void)unlink(path);
    }
    return code;
}

/* The text of the key lies in OpenSSL's secure memory, which is overwritten when it is freed. */
tutti_code
auth_write_private(const char *path, EVP_PKEY *pkey, tutti_error *err)
{
    BIO *bio = BIO_new(BIO_s_secmem());
    char *data = NULL;
    long size;
    tutti_code code;

    if (bio == NULL || PEM_write_bio_PKCS8PrivateKey(bio, pkey, NULL, NULL, 0, NULL, NULL) != 1) {
        BIO_free(bio);
        ERR_clear_error();
        return TUTTI_FAIL_MEMORY(err, "no memory for a key");
    }
    size = BIO_get_mem_data(bio, &data);
    code = auth_write_new(path, data, size > 0 ? (size_t)size : 0, 0600, err);
    BIO_free(bio);
    return code;
}
