/*
 * Local: what processes of one machine hand each other: descriptors over Unix sockets, and memory
 * behind descriptors. Any thread.
 *
 * Sockets are in the abstract namespace, that of the network namespace: nothing is left in any file
 * system, and a name needs no place. They keep messages apart (SOCK_SEQPACKET) and never block.
 */
#ifndef TUTTI_BASE_OS_LOCAL_H
#define TUTTI_BASE_OS_LOCAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/data/bytes.h"

#define TUTTI_LOCAL_FDS_MAX 4   /* in one message */
#define TUTTI_LOCAL_NAME_MAX 64 /* bytes of a socket's name */

#define TUTTI_LOCAL_HOST_MAX 127 /* bytes of a host's identity */

/*
 * Who has the same may share memory: `stated`, or when that is "" or NULL boot id and IPC
 * namespace.
 */
void tutti_local_host_id(const char *stated, char ret_id[TUTTI_LOCAL_HOST_MAX + 1]);

/* A socket, or -1 and errno. */
int tutti_local_listen(tutti_bytes name);
int tutti_local_connect(tutti_bytes name);

/*
 * On a listener: who connects can send no descriptors. A descriptor that comes has to be closed, and that may wait for
 * what its sender has made of it: a TCP socket with SO_LINGER, for as long as its sender likes. Linux before 6.16 lets
 * them come all the same.
 */
void tutti_local_refuse_descriptors(int listener);

/* Who is at the other end: the kernel's word, as it was when they connected. */
bool tutti_local_peer(int socket, uid_t *ret_user);
bool tutti_local_is_same_user(int socket); /* ... is who we are */

/* One message with `count` descriptors, which stay the caller's. False, and errno: not sent. */
bool tutti_local_send(int socket, const void *data, size_t size, const int *fds, size_t count);

/*
 * One message and its descriptors, which are the caller's then; what comes with too many is closed.
 *
 * Returns its bytes; 0 = the end, or a message that is too long; -1 = nothing yet.
 */
long tutti_local_receive(int socket, void *data, size_t size, int fds[TUTTI_LOCAL_FDS_MAX],
                         size_t *ret_count);

/* A sealed memfd of zeros, mapped; munmap and close them. NULL: no. */
void *tutti_local_create(const char *name, size_t size, int *ret_fd);

/* Map another's, if it is at least that large and can never shrink; munmap it. NULL: no. */
void *tutti_local_map(int fd, uint64_t size);

/* Wake who polls an eventfd that this process alone has; one that others have, too, is a bell (base/os/bell.h). Any
 * thread. */
void tutti_local_ring(int eventfd);

/*
 * An eventfd that stands for a state: readable while it is so. The caller's lock guards the state and this.
 *
 * [in] eventfd      -1 = nobody has asked for one
 * [in] was, is      the state before, and now
 */
void tutti_local_show(int eventfd, bool was, bool is);

void tutti_local_close_all(const int *fds, size_t count);

#endif
