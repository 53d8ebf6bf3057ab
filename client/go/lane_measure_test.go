package tutti

import (
	"context"
	"os"
	"sort"
	"testing"
	"time"

	"tutti/tuttiv1"
)

const (
	measureTurns = 9
	measureCalls = 1000
)

// measured is the time of a call of rank 0, while the other ranks make the same ones.
func measured(ctx context.Context, t *testing.T, agents []*Agent, handles []string) float64 {
	failures := make(chan error)
	began := time.Now()
	for _, agent := range agents {
		go func(agent *Agent) {
			handle := handles[agent.Info.Rank]
			request := &tuttiv1.AllReduceRequest{Input: Handle(handle), Output: handle, ReduceOp: tuttiv1.ReduceOp_REDUCE_OP_MAX}
			for call := 0; call < measureCalls; call++ {
				if _, err := agent.Collectives.AllReduce(ctx, request); err != nil {
					failures <- err
					return
				}
			}
			failures <- nil
		}(agent)
	}
	for range agents {
		if err := <-failures; err != nil {
			t.Fatal(err)
		}
	}
	return float64(time.Since(began).Nanoseconds()) / 1e3 / measureCalls
}

// TestLaneMeasure is ./run bench go: all_reduces in place, in turns through lanes and by gRPC; the medians of the turns.
func TestLaneMeasure(t *testing.T) {
	if os.Getenv("TUTTI_TEST_MEASURE") == "" {
		t.Skip("this measures: ./run bench go")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	agents := laneAgents(ctx, t)
	var plain []*Agent
	for _, agent := range agents {
		other, err := Connect(ctx, agent.address, FromEnvironment(), WithoutLane())
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		plain = append(plain, other)
	}
	for _, size := range []int{1, 8192, 131072} { // of 8 bytes
		handles := make([]string, len(agents))
		for _, agent := range agents {
			made, err := agent.Upload(ctx, Spec(make([]int64, size)), Bytes(make([]int64, size)), "")
			if err != nil {
				t.Fatal(err)
			}
			handles[agent.Info.Rank] = made.Handle
		}
		var lane, grpc []float64
		for turn := 0; turn < measureTurns; turn++ {
			lane = append(lane, measured(ctx, t, agents, handles))
			grpc = append(grpc, measured(ctx, t, plain, handles))
		}
		sort.Float64s(lane)
		sort.Float64s(grpc)
		t.Logf("%d bytes: %.1f us through lanes (least %.1f), %.1f by gRPC (least %.1f)", 8*size,
			lane[measureTurns/2], lane[0], grpc[measureTurns/2], grpc[0])
	}
}
