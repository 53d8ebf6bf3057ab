package tutti

import (
	"context"
	"strconv"
	"strings"
	"time"

	"tutti/tuttiv1"
)

// Range is a part of a tensor of this agent, wherever an op takes a handle or a name: from byte offset on, seen as this
// dtype and shape; without a shape one element. The agent checks it against the tensor (RANGE_OUTSIDE, RANGE_ALIGN).
// As an input it is Handle(Range(...)).
func Range(handle string, offset uint64, dtype tuttiv1.Dtype, shape ...int64) string {
	dims := make([]string, len(shape))
	for place, dim := range shape {
		dims[place] = strconv.FormatInt(dim, 10)
	}
	name := strings.TrimPrefix(dtype.String(), "DTYPE_")
	return handle + "@" + strconv.FormatUint(offset, 10) + ":" + name + "[" + strings.Join(dims, ",") + "]"
}

// Abort ends all ops of a group on all its ranks, under way or waiting, with GROUP_ABORTED; the reason, of at most 256
// bytes, is in their text. Later ops on the group are refused until it is made anew. "" is "world". Of several callers
// the first counts: Aborted of the response says whether it was this one.
func (agent *Agent) Abort(ctx context.Context, group, reason string) (*tuttiv1.AbortGroupResponse, error) {
	request := &tuttiv1.AbortGroupRequest{Member: agent.Member(), Name: group, Reason: reason}
	return agent.Coordinator.AbortGroup(ctx, request)
}

// Shrink makes a group anew from its ranks that are alive and call Shrink, in their order; all get the same group.
// Ranks that are alive and do not call are waited for, as long as timeout says, and left out then; 0 is as long as ctx
// lasts, at most --wait-timeout. LeftOut of the response says who was left out, and why.
func (agent *Agent) Shrink(ctx context.Context, group string, timeout time.Duration) (*tuttiv1.ShrinkGroupResponse, error) {
	request := &tuttiv1.ShrinkGroupRequest{
		Member: agent.Member(), Name: group, TimeoutMs: uint32(timeout.Milliseconds()),
	}
	return agent.Coordinator.ShrinkGroup(ctx, request)
}
