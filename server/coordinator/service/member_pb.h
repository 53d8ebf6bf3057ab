/* Member: who speaks, from the wire. For the *_pb.c files of this folder. */
#ifndef TUTTI_SERVER_COORDINATOR_SERVICE_MEMBER_PB_H
#define TUTTI_SERVER_COORDINATOR_SERVICE_MEMBER_PB_H

#include <stdint.h>

#include "server/coordinator/member/members.h"
#include "tutti/v1/coordinator_service.pb-c.h"
#include "tutti/v1/types.pb-c.h"

/* Borrows from the message. Without one it is nobody: incarnation 0. */
static inline tutti_coordinator_member
member_from_wire(const Tutti__V1__Member *member)
{
    if (member == NULL) {
        return (tutti_coordinator_member){.job = NULL, .rank = 0, .incarnation = 0};
    }
    return (tutti_coordinator_member){
        .job = member->job, .rank = member->rank, .incarnation = member->incarnation};
}

/* protobuf-c's pointers are not const; what it is lent here it only reads. */
static inline char *
text_to_wire(const char *text)
{
    return (char *)(uintptr_t)text;
}

static inline ProtobufCBinaryData
bytes_to_wire(tutti_bytes bytes)
{
    return (ProtobufCBinaryData){bytes.size, (uint8_t *)(uintptr_t)bytes.data};
}

static inline tutti_bytes
bytes_from_wire(ProtobufCBinaryData bytes)
{
    return (tutti_bytes){bytes.data, bytes.len};
}

/* What became of a rank: the one of the three that its kind says. */
typedef struct coord_event_wire {
    Tutti__V1__RankLost lost;
    Tutti__V1__RankLeaving leaving;
    Tutti__V1__RankJoined joined;
} coord_event_wire;

/* Borrows from the event. */
static inline void
coord_event_to_wire(const tutti_coordinator_event *event, coord_event_wire *ret_wire)
{
    tutti__v1__rank_lost__init(&ret_wire->lost);
    tutti__v1__rank_leaving__init(&ret_wire->leaving);
    tutti__v1__rank_joined__init(&ret_wire->joined);
    ret_wire->lost.rank = ret_wire->leaving.rank = ret_wire->joined.rank = event->rank;
    ret_wire->lost.epoch = ret_wire->leaving.epoch = ret_wire->joined.epoch = event->epoch;
    ret_wire->lost.incarnation = event->incarnation;
    ret_wire->leaving.incarnation = event->incarnation;
    ret_wire->joined.incarnation = event->incarnation;
    ret_wire->lost.reason = ret_wire->leaving.reason = text_to_wire(event->reason);
    ret_wire->lost.left = event->left;
}

#endif
