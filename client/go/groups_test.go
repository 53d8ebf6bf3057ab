package tutti

import (
	"context"
	"strings"
	"testing"
	"time"

	"tutti/tuttiv1"
)

func TestRangesAreTexts(t *testing.T) {
	for want, said := range map[string]string{
		"weights@256:FP32[2,8]":               Range("weights", 256, tuttiv1.Dtype_DTYPE_FP32, 2, 8),
		"tensor:1.2.3@0:BF16[]":               Range("tensor:1.2.3", 0, tuttiv1.Dtype_DTYPE_BF16),
		"x@8:FP8_E4M3[0]":                     Range("x", 8, tuttiv1.Dtype_DTYPE_FP8_E4M3, 0),
		"x@18446744073709551615:COMPLEX64[3]": Range("x", 1<<64-1, tuttiv1.Dtype_DTYPE_COMPLEX64, 3),
	} {
		if said != want {
			t.Errorf("%s, not %s", said, want)
		}
	}
}

func TestOpsOnRanges(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agents := connectAll(ctx, t)
	onAll(t, "a_part_is_summed_in_place", agents, func(t *testing.T, agent *Agent) error {
		values := []float32{1, 2, 3, 4}
		made, err := agent.Upload(ctx, Spec(values), Bytes(values), "")
		if err != nil {
			return err
		}
		middle := Range(made.Handle, 4, tuttiv1.Dtype_DTYPE_FP32, 2)
		request := &tuttiv1.AllReduceRequest{
			Input: Handle(middle), Output: middle, ReduceOp: tuttiv1.ReduceOp_REDUCE_OP_SUM,
		}
		if _, err := agent.Collectives.AllReduce(ctx, request); err != nil {
			return err
		}
		_, data, err := agent.Download(ctx, made.Handle)
		if err != nil {
			return err
		}
		got, err := Values[float32](data)
		size := float32(len(agents))
		if err != nil || got[0] != 1 || got[1] != 2*size || got[2] != 3*size || got[3] != 4 {
			t.Errorf("rank %d: %v %v", agent.Info.Rank, got, err)
		}
		request.Input = Handle(Range(made.Handle, 12, tuttiv1.Dtype_DTYPE_FP32, 2))
		request.Output = ""
		_, err = agent.Collectives.AllReduce(ctx, request)
		if found := AsError(err); found == nil || found.Reason != "RANGE_OUTSIDE" {
			t.Errorf("rank %d: %v", agent.Info.Rank, err)
		}
		return agent.Delete(ctx, made.Handle)
	})
}

func TestAbortAndShrink(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agents := connectAll(ctx, t)
	ranks := make([]int32, len(agents))
	for rank := range ranks {
		ranks[rank] = int32(rank)
	}
	onAll(t, "a_group_is_made", agents, func(t *testing.T, agent *Agent) error {
		request := &tuttiv1.CreateGroupRequest{Member: agent.Member(), Name: "go-abort", Ranks: ranks}
		_, err := agent.Coordinator.CreateGroup(ctx, request)
		return err
	})
	onAll(t, "rank_0_aborts_what_the_others_wait_in", agents, func(t *testing.T, agent *Agent) error {
		if agent.Info.Rank == 0 {
			said, err := agent.Abort(ctx, "go-abort", "the loss is NaN")
			if err == nil && !said.Aborted {
				t.Errorf("%v", said)
			}
			return err
		}
		_, err := agent.Collectives.Barrier(ctx, &tuttiv1.BarrierRequest{Group: "go-abort"})
		found := AsError(err)
		if found == nil || found.Reason != "GROUP_ABORTED" || !strings.Contains(err.Error(), "the loss is NaN") {
			t.Errorf("rank %d: %v", agent.Info.Rank, err)
		}
		return nil
	})
	onAll(t, "the_ranks_that_call_are_the_new_group", agents, func(t *testing.T, agent *Agent) error {
		if int(agent.Info.Rank) == len(agents)-1 {
			return nil // it does not call
		}
		said, err := agent.Shrink(ctx, "go-abort", 300*time.Millisecond)
		if err != nil {
			return err
		}
		if len(said.Group.Ranks) != len(agents)-1 || said.GroupRank != agent.Info.Rank || said.LeftOut == "" {
			t.Errorf("rank %d: %v", agent.Info.Rank, said)
		}
		_, err = agent.Collectives.Barrier(ctx, &tuttiv1.BarrierRequest{Group: said.Group.Name})
		return err
	})
	for _, agent := range agents {
		agent.Close()
	}
}
