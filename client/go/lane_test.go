package tutti

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"tutti/tuttiv1"
)

// laneAgents are agents whose calls go by lanes from here on; without them the test is skipped.
func laneAgents(ctx context.Context, t *testing.T) []*Agent {
	agents := connectAll(ctx, t)
	for _, agent := range agents {
		if err := agent.CheckLane(ctx); err != nil {
			t.Fatalf("rank %d: %v", agent.Info.Rank, err)
		}
		untilCarried(ctx, t, agent)
		t.Cleanup(agent.Close)
	}
	return agents
}

// carriedBy is how many calls have gone by lanes.
func carriedBy(agent *Agent) uint64 { return atomic.LoadUint64(&agent.lanes.carried) }

// untilCarried calls until a lane has carried a call: on a busy machine the first may come too late.
func untilCarried(ctx context.Context, t *testing.T, agent *Agent) {
	for before := carriedBy(agent); carriedBy(agent) == before; {
		if _, err := agent.Tensors.List(ctx, &tuttiv1.ListRequest{}); err != nil {
			t.Fatal(err)
		}
	}
}

// step runs a call on all ranks, which each have so many calls by lanes.
func step(t *testing.T, name string, agents []*Agent, calls uint64, call func(*Agent) error) {
	onAll(t, name, agents, func(t *testing.T, agent *Agent) error {
		before := carriedBy(agent)
		err := call(agent)
		if found := carriedBy(agent) - before; err == nil && found != calls {
			t.Errorf("rank %d: %d calls by lanes, not %d", agent.Info.Rank, found, calls)
		}
		return err
	})
}

// holdsFloats is an error unless the tensor has these values.
func holdsFloats(ctx context.Context, t *testing.T, agent *Agent, handle string, want ...float32) error {
	_, data, err := agent.Download(ctx, handle)
	if err != nil {
		return err
	}
	values, err := Values[float32](data)
	for place := range want {
		if err != nil || len(values) != len(want) || values[place] != want[place] {
			t.Errorf("rank %d: %v, not %v", agent.Info.Rank, values, want)
			break
		}
	}
	return err
}

func fromRank(rank int32) *tuttiv1.RecvRequest_Source {
	return &tuttiv1.RecvRequest_Source{Source: rank}
}

// TestLaneOps: the ops of three ranks go by lanes, and give what they give by gRPC.
func TestLaneOps(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agents := laneAgents(ctx, t)
	mine, sums := make([]string, len(agents)), make([]string, len(agents))
	sum := tuttiv1.ReduceOp_REDUCE_OP_SUM

	step(t, "put", agents, 2, func(agent *Agent) (err error) {
		r := float32(agent.Info.Rank)
		made, err := agent.Upload(ctx, Spec([]float32{0, 0, 0}), Bytes([]float32{r, 10 + r, 20 + r}), "")
		if err != nil {
			return err
		}
		mine[agent.Info.Rank] = made.Handle
		made, err = agent.Upload(ctx, Spec([]float32{0, 0, 0}), Bytes([]float32{0, 0, 0}), "")
		sums[agent.Info.Rank] = made.GetHandle()
		return err
	})
	step(t, "all_reduce", agents, 1, func(agent *Agent) error {
		request := &tuttiv1.AllReduceRequest{Input: Handle(mine[agent.Info.Rank]), Output: sums[agent.Info.Rank], ReduceOp: sum}
		said, err := agent.Collectives.AllReduce(ctx, request)
		if err != nil || said.Output.Handle != sums[agent.Info.Rank] || said.Info.Sequence == 0 {
			t.Errorf("rank %d: %v: %v", agent.Info.Rank, said, err)
			return err
		}
		return holdsFloats(ctx, t, agent, sums[agent.Info.Rank], 3, 33, 63)
	})
	step(t, "all_reduce_of_values", agents, 1, func(agent *Agent) error {
		found, err := AllReduce(ctx, agent, []int64{int64(agent.Info.Rank), 7}, sum)
		if err == nil && (len(found) != 2 || found[0] != 3 || found[1] != 21) {
			t.Errorf("rank %d: %v", agent.Info.Rank, found)
		}
		return err
	})
	step(t, "broadcast_of_a_range", agents, 1, func(agent *Agent) error {
		where := Range(sums[agent.Info.Rank], 4, tuttiv1.Dtype_DTYPE_FP32, 2)
		request := &tuttiv1.BroadcastRequest{Output: where, OptRoot: &tuttiv1.BroadcastRequest_Root{Root: 1}}
		if agent.Info.Rank == 1 {
			request.Input = Handle(Range(mine[1], 0, tuttiv1.Dtype_DTYPE_FP32, 2))
		}
		if _, err := agent.Collectives.Broadcast(ctx, request); err != nil {
			return err
		}
		return holdsFloats(ctx, t, agent, sums[agent.Info.Rank], 3, 1, 11)
	})
	step(t, "all_gather", agents, 1, func(agent *Agent) error {
		one := Handle(Range(mine[agent.Info.Rank], 0, tuttiv1.Dtype_DTYPE_FP32, 1))
		if _, err := agent.Collectives.AllGather(ctx, &tuttiv1.AllGatherRequest{Input: one, Output: sums[agent.Info.Rank]}); err != nil {
			return err
		}
		return holdsFloats(ctx, t, agent, sums[agent.Info.Rank], 0, 1, 2)
	})
	step(t, "reduce_scatter", agents, 1, func(agent *Agent) error {
		part := Range(sums[agent.Info.Rank], 0, tuttiv1.Dtype_DTYPE_FP32, 1)
		request := &tuttiv1.ReduceScatterRequest{Input: Handle(mine[agent.Info.Rank]), Output: part, ReduceOp: sum}
		if _, err := agent.Collectives.ReduceScatter(ctx, request); err != nil {
			return err
		}
		return holdsFloats(ctx, t, agent, sums[agent.Info.Rank], []float32{3, 33, 63}[agent.Info.Rank], 1, 2)
	})
	step(t, "all_to_all", agents, 1, func(agent *Agent) error {
		request := &tuttiv1.AllToAllRequest{Input: Handle(mine[agent.Info.Rank]), Output: sums[agent.Info.Rank]}
		if _, err := agent.Collectives.AllToAll(ctx, request); err != nil {
			return err
		}
		r := float32(10 * agent.Info.Rank)
		return holdsFloats(ctx, t, agent, sums[agent.Info.Rank], r, r+1, r+2)
	})
	step(t, "barrier", agents, 1, func(agent *Agent) error {
		_, err := agent.Collectives.Barrier(ctx, &tuttiv1.BarrierRequest{})
		return err
	})
	step(t, "send_and_recv", agents[:2], 1, func(agent *Agent) error {
		if agent.Info.Rank == 0 {
			_, err := agent.Collectives.Send(ctx, &tuttiv1.SendRequest{
				Input: Handle(mine[0]), OptDestination: &tuttiv1.SendRequest_Destination{Destination: 1},
			})
			return err
		}
		if _, err := agent.Collectives.Recv(ctx, &tuttiv1.RecvRequest{Output: sums[1], OptSource: fromRank(0)}); err != nil {
			return err
		}
		return holdsFloats(ctx, t, agent, sums[1], 0, 10, 20)
	})
	step(t, "async_and_wait", agents, 2, func(agent *Agent) error {
		request := &tuttiv1.AllReduceRequest{Input: Handle(mine[agent.Info.Rank]), ReduceOp: sum, Options: Async()}
		said, err := agent.Collectives.AllReduce(ctx, request)
		if err != nil {
			return err
		}
		made, err := agent.Wait(ctx, said.Info.Work)
		if err != nil {
			return err
		}
		if err = holdsFloats(ctx, t, agent, made.Handle, 3, 33, 63); err != nil {
			return err
		}
		mine[agent.Info.Rank] += " " + made.Handle
		return nil
	})
	step(t, "delete", agents, 1, func(agent *Agent) error {
		return agent.Delete(ctx, append(strings.Fields(mine[agent.Info.Rank]), sums[agent.Info.Rank])...)
	})
}

// TestLaneSizes: what is too large for a lane comes by gRPC in its place.
func TestLaneSizes(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agent := laneAgents(ctx, t)[0]
	for _, size := range []int{1, 1000, 2000, 5000, 100000} {
		values := make([]float64, size)
		values[size-1] = float64(size)
		made, err := agent.Upload(ctx, Spec(values), Bytes(values), "")
		if err != nil {
			t.Fatal(err)
		}
		before := carriedBy(agent)
		for place := 0; place < 20; place++ {
			said, err := agent.Tensors.Get(ctx, &tuttiv1.GetRequest{Handle: made.Handle})
			if err != nil {
				t.Fatal(err)
			}
			if back, err := Values[float64](said.Payload); err != nil || len(back) != size || back[size-1] != float64(size) {
				t.Fatalf("%d values, not %d: %v", len(back), size, err)
			}
		}
		if found := carriedBy(agent) - before; found != 20 {
			t.Fatalf("%d calls by lanes", found)
		}
		if err = agent.Delete(ctx, made.Handle); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLaneErrors: the same words and details as by gRPC.
func TestLaneErrors(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	by := laneAgents(ctx, t)[0]
	plain, err := Connect(ctx, by.address, FromEnvironment(), WithoutLane())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if found := AsError(plain.CheckLane(ctx)); found == nil || found.Reason != "LANE_UNWANTED" {
		t.Fatalf("without lanes: %v", found)
	}
	before := carriedBy(by)
	for name, call := range map[string]func(*Agent) error{
		"no tensor": func(agent *Agent) error {
			_, err := agent.Tensors.Stat(ctx, &tuttiv1.StatRequest{Handle: "none"})
			return err
		},
		"no group": func(agent *Agent) error {
			_, err := agent.Collectives.Barrier(ctx, &tuttiv1.BarrierRequest{Group: "none"})
			return err
		},
	} {
		one, other := AsError(call(by)), AsError(call(plain))
		if one == nil || other == nil || one.Error() != other.Error() || one.Rank != other.Rank || one.Group != other.Group {
			t.Errorf("%s: %+v by a lane, %+v by gRPC", name, one, other)
		}
		for key, value := range other.Metadata {
			if one.Metadata[key] != value {
				t.Errorf("%s: %v by a lane, %v by gRPC", name, one.Metadata, other.Metadata)
			}
		}
	}
	if found := carriedBy(by) - before; found != 2 {
		t.Errorf("%d calls by lanes, not 2", found)
	}
	special := metadata.AppendToOutgoingContext(ctx, "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if _, err = by.Tensors.List(special, &tuttiv1.ListRequest{}); err != nil || carriedBy(by)-before != 2 {
		t.Errorf("a call with metadata: %v, %d by lanes", err, carriedBy(by)-before)
	}
}

// TestLaneContexts: a call that waits ends with its context, and the next one goes by a lane again.
func TestLaneContexts(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agent := laneAgents(ctx, t)[0]
	for round := 0; round < 3; round++ {
		short, stop := context.WithCancel(ctx)
		ended := make(chan error)
		go func() {
			_, err := agent.Collectives.Recv(short, &tuttiv1.RecvRequest{OptSource: fromRank(1)})
			ended <- err
		}()
		time.Sleep(time.Duration(round) * laneTick) // before and behind the tick: nothing is waited for
		stop()
		if found := AsError(<-ended); found == nil || found.Code != codes.Canceled {
			t.Fatalf("cancelled: %v", found)
		}
		short, stop = context.WithTimeout(ctx, time.Duration(1+round*30)*time.Millisecond)
		_, err := agent.Collectives.Recv(short, &tuttiv1.RecvRequest{OptSource: fromRank(1)})
		stop()
		if found := AsError(err); found == nil || found.Code != codes.DeadlineExceeded {
			t.Fatalf("too late: %v", err)
		}
		untilCarried(ctx, t, agent)
	}
}

// TestLaneGoroutines: many at once, more than there are streams.
func TestLaneGoroutines(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agent := laneAgents(ctx, t)[0]
	made, err := agent.Upload(ctx, Spec([]int32{1}), Bytes([]int32{1}), "")
	if err != nil {
		t.Fatal(err)
	}
	before := carriedBy(agent)
	var all sync.WaitGroup
	for place := 0; place < 4*laneStreamsMax; place++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for turn := 0; turn < 50; turn++ {
				said, err := agent.Tensors.Stat(ctx, &tuttiv1.StatRequest{Handle: made.Handle})
				if err != nil || said.Info.Tensor.Handle != made.Handle {
					t.Errorf("%v: %v", said, err)
					return
				}
			}
		}()
	}
	all.Wait()
	if carriedBy(agent) == before {
		t.Error("none went by a lane")
	}
	if err = agent.Delete(ctx, made.Handle); err != nil {
		t.Error(err)
	}
	agent.lanes.lock.Lock()
	defer agent.lanes.lock.Unlock()
	if agent.lanes.count > laneStreamsMax || agent.lanes.count != len(agent.lanes.idle) {
		t.Errorf("%d streams, %d idle", agent.lanes.count, len(agent.lanes.idle))
	}
}

// TestLaneOff: an agent without lanes, or a client that wants none, is told so, and calls go by gRPC.
func TestLaneOff(t *testing.T) {
	want := os.Getenv("TUTTI_TEST_WHY_NO_LANE")
	if want == "" {
		t.Skip("the agents have lanes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agents := connectAll(ctx, t)
	onAll(t, "calls_go_by_gRPC", agents, func(t *testing.T, agent *Agent) error {
		for place := 0; place < 5; place++ {
			if _, err := AllReduce(ctx, agent, []float32{1}, tuttiv1.ReduceOp_REDUCE_OP_SUM); err != nil {
				return err
			}
		}
		if found := AsError(agent.CheckLane(ctx)); found == nil || found.Reason != want {
			t.Errorf("%v, not %s", found, want)
		}
		if agent.lanes != nil && carriedBy(agent) != 0 {
			t.Errorf("%d calls by lanes", carriedBy(agent))
		}
		agent.Close()
		return nil
	})
}

// writeToken puts a token of a client into the file, which servers take for so long: their clocks may be 30 s late.
func writeToken(t *testing.T, key, path string, taken time.Duration) {
	secret, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"aud":"tutti","sub":"tests","role":"client","job":"default","exp":%d}`,
		time.Now().Add(taken-30*time.Second).Unix())
	text := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(claims))
	sign := hmac.New(sha256.New, []byte(strings.TrimSpace(string(secret))))
	sign.Write([]byte(text))
	text += "." + encode(sign.Sum(nil))
	if err = os.WriteFile(path+".new", []byte(text), 0o600); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestLaneToken: when the token that a lane's stream began with ends, calls are refused; with another token in the file, there
// is a lane again. If that is there in time, no call fails.
func TestLaneToken(t *testing.T) {
	key := os.Getenv("TUTTI_TEST_KEY")
	if key == "" {
		t.Skip("no key to sign tokens with: set TUTTI_TEST_KEY to its file")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	path := t.TempDir() + "/token"
	t.Setenv("TUTTI_TOKEN_FILE", path)
	const taken = 8 * time.Second
	list := func(agent *Agent) error {
		_, err := agent.Tensors.List(ctx, &tuttiv1.ListRequest{})
		return err
	}

	writeToken(t, key, path, taken)
	agent := laneAgents(ctx, t)[0]
	var err error
	for err == nil {
		err = list(agent)
	}
	if found := AsError(err); found == nil || found.Code != codes.Unauthenticated || found.Reason != "TOKEN_EXPIRED" {
		t.Fatalf("when the token had ended: %v", err)
	}
	writeToken(t, key, path, taken)
	for began := time.Now(); err != nil; err = list(agent) {
		if time.Since(began) > time.Minute {
			t.Fatalf("with another token: %v", err)
		}
	}
	untilCarried(ctx, t, agent)
	writeToken(t, key, path, time.Hour)
	for began := time.Now(); time.Since(began) < taken+2*time.Second; {
		if err = list(agent); err != nil {
			t.Fatalf("the next token was there in time: %v", err)
		}
	}
	untilCarried(ctx, t, agent)
}

// TestLaneKilled: a call under way fails when its agent is killed; so do later ones, and none hangs.
func TestLaneKilled(t *testing.T) {
	victim, _ := strconv.Atoi(os.Getenv("TUTTI_TEST_VICTIM"))
	if victim == 0 {
		t.Skip("no agent to kill: set TUTTI_TEST_VICTIM to the first one's process")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agent := laneAgents(ctx, t)[0]
	ended := make(chan error)
	go func() {
		_, err := agent.Collectives.Recv(ctx, &tuttiv1.RecvRequest{OptSource: fromRank(1)})
		ended <- err
	}()
	for { // until the agent has it
		said, err := agent.Diagnostics.GetStats(ctx, &tuttiv1.GetStatsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if said.OpRunningCount > 0 {
			break
		}
	}
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if found := AsError(<-ended); found == nil || found.Code != codes.Unavailable {
		t.Fatalf("the call under way: %v", found)
	}
	short, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	_, err := agent.Tensors.List(short, &tuttiv1.ListRequest{})
	if found := AsError(err); found == nil || found.Code != codes.Unavailable {
		t.Fatalf("a later call: %v", err)
	}
}
