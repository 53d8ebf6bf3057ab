/*
 * The structs of an agent, for files that only point to them.
 */
#ifndef TUTTI_SERVER_AGENT_STATE_TYPES_H
#define TUTTI_SERVER_AGENT_STATE_TYPES_H

typedef struct agent_access agent_access;               /* transfer/access.h */
typedef struct agent_group agent_group;                 /* state/group.h */
typedef struct agent_kept agent_kept;                   /* op/answers.h */
typedef struct agent_list agent_list;                   /* op/list.h */
typedef struct agent_op agent_op;                       /* state/op.h */
typedef struct agent_backward_pass agent_backward_pass; /* autograd/backward_private.h */
typedef struct agent_work agent_work;                   /* op/works_private.h */

#endif
