/*
 * Has a file changed? Device, inode, size and time of change are compared: a file that is
 * replaced (rename, as certificate tools do it) has another inode even if the time is the same.
 */
#include "rpc/util/stamp.h"

#include <stddef.h>
#include <sys/stat.h>

rpc_stamp
rpc_stamp_take(const char *path)
{
    rpc_stamp stamp = {0};
    struct stat found;

    if (path != NULL && stat(path, &found) == 0) {
        stamp.device = (uint64_t)found.st_dev;
        stamp.inode = (uint64_t)found.st_ino;
        stamp.size = (int64_t)found.st_size;
        stamp.seconds = (int64_t)found.st_mtim.tv_sec;
        stamp.nanoseconds = (int64_t)found.st_mtim.tv_nsec;
    }
    return stamp;
}

bool
rpc_stamp_equal(const rpc_stamp *left, const rpc_stamp *right)
{
    return left->device == right->device && left->inode == right->inode &&
           left->size == right->size && left->seconds == right->seconds &&
           left->nanoseconds == right->nanoseconds;
}

rpc_stamps
rpc_stamps_take(const char *cert_path, const char *key_path, const char *ca_path)
{
    return (rpc_stamps){.cert = rpc_stamp_take(cert_path),
                        .key = rpc_stamp_take(key_path),
                        .ca = rpc_stamp_take(ca_path)};
}

bool
rpc_stamps_equal(const rpc_stamps *left, const rpc_stamps *right)
{
    return rpc_stamp_equal(&left->cert, &right->cert) && rpc_stamp_equal(&left->key, &right->key) &&
           rpc_stamp_equal(&left->ca, &right->ca);
}
