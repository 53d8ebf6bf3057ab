package tutti

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"tutti/tuttiv1"
)

const count = 1<<20 + 3 // floats: several chunks, and a part of one

// onAll runs a step for all ranks at once; after one that failed the others would only wait.
func onAll(t *testing.T, name string, agents []*Agent, call func(*testing.T, *Agent) error) {
	fine := t.Run(name, func(t *testing.T) {
		failures := make(chan error)
		for _, agent := range agents {
			go func(agent *Agent) { failures <- call(t, agent) }(agent)
		}
		for range agents {
			if err := <-failures; err != nil {
				t.Error(err)
			}
		}
	})
	if !fine {
		t.FailNow()
	}
}

func connectAll(ctx context.Context, t *testing.T) []*Agent {
	known := strings.Fields(os.Getenv("TUTTI_TEST_AGENTS"))
	if len(known) == 0 {
		t.Skip("no agents: set TUTTI_TEST_AGENTS to their addresses")
	}
	first, err := Connect(ctx, known[0], FromEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	agents := []*Agent{first}
	for rank := uint32(1); rank < first.Info.WorldSize; rank++ {
		agent, err := first.ConnectRank(ctx, rank)
		if err != nil {
			t.Fatal(err)
		}
		agents = append(agents, agent)
	}
	return agents
}

// expect downloads a tensor and looks at it.
func expect(ctx context.Context, t *testing.T, agent *Agent, handle string, want float32) error {
	ref, data, err := agent.Download(ctx, handle)
	if err != nil {
		return err
	}
	values, err := Values[float32](data)
	if err != nil || len(values) != count || ref.Spec.Dtype != tuttiv1.Dtype_DTYPE_FP32 {
		t.Errorf("%v: %d values: %v", ref, len(values), err)
	}
	for place, value := range values {
		if value != want {
			t.Errorf("rank %d: value %d is %g, not %g", agent.Info.Rank, place, value, want)
			break
		}
	}
	return nil
}

func TestScenario(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agents := connectAll(ctx, t)
	size := len(agents)
	mine := make([]string, size)
	sums := make([]string, size)

	onAll(t, "tensors_are_uploaded_in_chunks", agents, func(t *testing.T, agent *Agent) error {
		values := make([]float32, count)
		for place := range values {
			values[place] = float32(agent.Info.Rank + 1)
		}
		made, err := agent.Upload(ctx, Spec(values), Bytes(values), "")
		mine[agent.Info.Rank] = made.GetHandle()
		return err
	})
	onAll(t, "all_reduce_gives_the_sum", agents, func(t *testing.T, agent *Agent) error {
		request := &tuttiv1.AllReduceRequest{
			Input: Handle(mine[agent.Info.Rank]), ReduceOp: tuttiv1.ReduceOp_REDUCE_OP_SUM,
		}
		said, err := agent.Collectives.AllReduce(ctx, request)
		if err != nil {
			return err
		}
		sums[agent.Info.Rank] = said.Output.Handle
		return expect(ctx, t, agent, said.Output.Handle, float32(size*(size+1)/2))
	})
	onAll(t, "an_async_broadcast_is_waited_for", agents, func(t *testing.T, agent *Agent) error {
		request := &tuttiv1.BroadcastRequest{
			Options: Async(), OptRoot: &tuttiv1.BroadcastRequest_Root{Root: 1},
		}
		if agent.Info.Rank == 1 {
			request.Input = Handle(mine[1])
		} else {
			request.Output = sums[agent.Info.Rank]
		}
		said, err := agent.Collectives.Broadcast(ctx, request)
		if err != nil {
			return err
		}
		made, err := agent.Wait(ctx, said.Info.Work)
		if err != nil {
			return err
		}
		return expect(ctx, t, agent, made.Handle, 2)
	})
	cancelled := make(chan struct{})
	onAll(t, "a_cancelled_op_ends_on_all_ranks", agents, func(t *testing.T, agent *Agent) error {
		if agent.Info.Rank == 1 {
			defer close(cancelled)
		} else {
			<-cancelled
		}
		said, err := agent.Collectives.Barrier(ctx, &tuttiv1.BarrierRequest{Options: Async()})
		if err == nil && agent.Info.Rank == 1 {
			err = agent.Cancel(ctx, said.Info.Work)
		}
		if err != nil {
			return err
		}
		_, err = agent.Wait(ctx, said.Info.Work)
		if found := AsError(err); found == nil || found.Reason != "CALLER_GONE" || found.Rank != 1 {
			t.Errorf("rank %d: %v", agent.Info.Rank, err)
		}
		return nil
	})
	onAll(t, "an_error_has_its_details", agents, func(t *testing.T, agent *Agent) error {
		_, err := AllReduce(ctx, agent, make([]float64, 2+agent.Info.Rank%2), tuttiv1.ReduceOp_REDUCE_OP_SUM)
		found := AsError(err)
		if found == nil || found.Code != codes.InvalidArgument || found.Reason != "SHAPE_MISMATCH" ||
			found.Group != "world" || found.Op == 0 {
			t.Errorf("rank %d: %v: %+v", agent.Info.Rank, err, found)
		}
		return nil
	})
	onAll(t, "tensors_are_made_where_they_are_asked_for", agents, func(t *testing.T, agent *Agent) error {
		for _, values := range [][]float32{make([]float32, 3), make([]float32, count)} {
			made, err := agent.UploadTo(ctx, "cpu", Spec(values), Bytes(values), "")
			if err != nil {
				return err
			}
			if said, err := agent.Tensors.Stat(ctx, &tuttiv1.StatRequest{Handle: made.Handle}); err != nil || said.Info.Device != "cpu" {
				t.Errorf("rank %d: %v: %v", agent.Info.Rank, said, err)
			}
			if err := agent.Delete(ctx, made.Handle); err != nil {
				return err
			}
			_, err = agent.UploadTo(ctx, "cuda:7", Spec(values), Bytes(values), "")
			if found := AsError(err); found == nil || found.Reason != "NO_DEVICE" || !strings.Contains(err.Error(), "cuda:7") {
				t.Errorf("rank %d: %v", agent.Info.Rank, err)
			}
		}
		return nil
	})
	onAll(t, "nothing_is_left", agents, func(t *testing.T, agent *Agent) error {
		if err := agent.Delete(ctx, mine[agent.Info.Rank], sums[agent.Info.Rank]); err != nil {
			return err
		}
		left, err := agent.Tensors.List(ctx, &tuttiv1.ListRequest{})
		if err == nil && len(left.Tensors) != 0 {
			t.Errorf("rank %d has %v", agent.Info.Rank, left.Tensors)
		}
		agent.Close()
		return err
	})
}
