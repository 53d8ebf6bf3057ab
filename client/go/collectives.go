package tutti

import (
	"context"

	"tutti/tuttiv1"
)

// Handle is a tensor in the agent as an argument.
func Handle(handle string) *tuttiv1.TensorArg {
	return &tuttiv1.TensorArg{Kind: &tuttiv1.TensorArg_Handle{Handle: handle}}
}

// Async are options of an op that answers at once: Wait for its work.
func Async() *tuttiv1.OpOptions {
	return &tuttiv1.OpOptions{Async: true}
}

// AllReduce gives every rank of the world the reduction of all slices, which have one length.
func AllReduce[T Element](ctx context.Context, agent *Agent, values []T, op tuttiv1.ReduceOp) ([]T, error) {
	data := Bytes(values)
	if len(data) > inlineBytesMax {
		return allReduceStaged(ctx, agent, values, op)
	}
	said, err := agent.Collectives.AllReduce(ctx, &tuttiv1.AllReduceRequest{
		Input:    &tuttiv1.TensorArg{Kind: &tuttiv1.TensorArg_InlineTensor{InlineTensor: Spec(values)}},
		ReduceOp: op,
		Payload:  data,
	})
	if err != nil {
		return nil, err
	}
	return Values[T](said.Payload)
}

// allReduceStaged is for more than a message carries: in place, in a tensor for the time of the op.
func allReduceStaged[T Element](ctx context.Context, agent *Agent, values []T, op tuttiv1.ReduceOp) ([]T, error) {
	made, err := agent.Upload(ctx, Spec(values), Bytes(values), "")
	if err != nil {
		return nil, err
	}
	defer agent.Delete(context.Background(), made.Handle)
	request := &tuttiv1.AllReduceRequest{Input: Handle(made.Handle), Output: made.Handle, ReduceOp: op}
	if _, err = agent.Collectives.AllReduce(ctx, request); err != nil {
		return nil, err
	}
	_, data, err := agent.Download(ctx, made.Handle)
	if err != nil {
		return nil, err
	}
	return Values[T](data)
}

// Cancel ends an async op that still runs, on all ranks: Wait tells how it has ended.
func (agent *Agent) Cancel(ctx context.Context, work string) error {
	_, err := agent.Collectives.Cancel(ctx, &tuttiv1.CancelRequest{Works: []string{work}})
	return err
}

// Wait waits for an async op, as long as ctx lasts: what it made, nil where this rank gets nothing.
func (agent *Agent) Wait(ctx context.Context, work string) (*tuttiv1.TensorRef, error) {
	said, err := agent.Collectives.Wait(ctx, &tuttiv1.WaitRequest{Works: []string{work}})
	if err != nil {
		return nil, err
	}
	return said.Works[0].Output, ofValue(said.Works[0].Error)
}
