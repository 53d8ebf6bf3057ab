package tutti

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"tutti/tuttiv1"
)

func openSession(ctx context.Context, t *testing.T) (*Agent, *Session) {
	known := strings.Fields(os.Getenv("TUTTI_TEST_AGENTS"))
	if len(known) == 0 {
		t.Skip("no agents: set TUTTI_TEST_AGENTS to their addresses")
	}
	agent, err := Connect(ctx, known[0], FromEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	session, err := agent.OpenSession(ctx, &tuttiv1.DriveOpen{})
	if err != nil {
		t.Fatal(err)
	}
	return agent, session
}

func take(t *testing.T, session *Session) Register {
	register, err := session.Register()
	if err != nil {
		t.Fatal(err)
	}
	return register
}

// holds reads a tensor of one worker.
func holds(ctx context.Context, t *testing.T, session *Session, worker uint32, register Register, want ...float32) {
	t.Helper()
	_, data, err := session.Read(ctx, worker, register)
	if err != nil {
		t.Fatal(err)
	}
	values, _ := Values[float32](data)
	if len(values) != len(want) {
		t.Fatalf("worker %d: %v, not %v", worker, values, want)
	}
	for place := range want {
		if values[place] != want[place] {
			t.Fatalf("worker %d: %v, not %v", worker, values, want)
		}
	}
}

func TestSessionDrivesAllWorkers(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agent, session := openSession(ctx, t)
	defer agent.Close()
	size := len(session.Info.Workers)
	x, sum, all := take(t, session), take(t, session), take(t, session)
	if x != 1 || sum != 2 {
		t.Fatalf("registers %d, %d", x, sum)
	}
	if err := session.Put(ctx, 0, x, Spec([]float32{1, 2}), Bytes([]float32{1, 2})); err != nil {
		t.Fatal(err)
	}
	session.BroadcastFromWorker0(x, x)
	session.AllReduce(x, sum, tuttiv1.ReduceOp_REDUCE_OP_SUM)
	session.AllGather(x, all)
	if err := session.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	for worker := 0; worker < size; worker++ {
		holds(ctx, t, session, uint32(worker), sum, float32(size), float32(2*size))
	}
	values, err := session.Get(ctx, all)
	if err != nil || len(values) != size || values[1].Spec.Shape[0] != int64(2*size) {
		t.Fatalf("%v: %v", values, err)
	}
	session.Drop(sum)
	if again := take(t, session); again != sum {
		t.Fatalf("%d was dropped last, and %d is given", sum, again)
	}
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSessionTellsErrorsOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agent, session := openSession(ctx, t)
	defer agent.Close()
	defer session.Close()
	x, y := take(t, session), take(t, session)
	session.AllReduce(x, y, tuttiv1.ReduceOp_REDUCE_OP_SUM) // x is null
	session.Call(0, "nobody")
	err := session.Sync(ctx)
	if found := AsError(err); found == nil || found.Code != codes.NotFound || found.Reason == "UNKNOWN_FUNC" {
		t.Fatalf("the first error: %v", err)
	}
	if err = session.Sync(ctx); err != nil {
		t.Fatalf("told again: %v", err)
	}
	answer, err := session.Call(0, "nobody").Wait(ctx)
	if found := AsError(err); found == nil || found.Reason != "UNKNOWN_FUNC" || len(answer.Failed) != len(session.Info.Workers) {
		t.Fatalf("%v: %v", answer, err)
	}
	if _, err = session.Call(0, "f", struct{}{}).Wait(ctx); err == nil || !strings.Contains(err.Error(), "cannot be passed") {
		t.Fatal(err)
	}
}

func TestSessionCallsFunctions(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agent, session := openSession(ctx, t)
	defer agent.Close()
	defer session.Close()
	answer, err := session.Call(0, "runtime.disco.worker_id").Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for worker, value := range Results(answer) {
		if value.GetInteger() != int64(worker) {
			t.Fatalf("worker %d says %v", worker, value)
		}
	}
	word := take(t, session)
	session.Set(word, "tutti")
	values, err := session.Get(ctx, word)
	if err != nil || len(values) != len(session.Info.Workers) || values[0].GetText() != "tutti" {
		t.Fatalf("%v: %v", values, err)
	}
}

func TestServicesOfTheCoordinator(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agents := connectAll(ctx, t)
	onAll(t, "metadata_is_gathered", agents, func(t *testing.T, agent *Agent) error {
		request := &tuttiv1.MetadataServiceAllGatherRequest{
			Member: agent.Member(), Key: "go", Payload: []byte{byte(agent.Info.Rank)},
		}
		said, err := agent.Metadata.AllGather(ctx, request)
		if err == nil && (len(said.Values) != len(agents) || said.Values[1][0] != 1) {
			t.Errorf("%v", said)
		}
		return err
	})
	onAll(t, "tracers_are_listed", agents, func(t *testing.T, agent *Agent) error {
		_, err := agent.Tracers.ListTracers(ctx, &tuttiv1.ListTracersRequest{})
		agent.Close()
		return err
	})
}

// startHosts runs the example beside each agent, until the test ends.
func startHosts(t *testing.T, program string) {
	for _, address := range strings.Fields(os.Getenv("TUTTI_TEST_AGENTS")) {
		host := exec.Command(program, address)
		host.Stderr = os.Stderr
		out, err := host.StdoutPipe()
		if err == nil {
			err = host.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = host.Process.Kill(); _ = host.Wait() })
		line, err := bufio.NewReader(out).ReadString('\n')
		if !strings.HasPrefix(line, "serving 3 functions") {
			t.Fatalf("the host says %q: %v", line, err)
		}
	}
}

func TestHostInGoRunsFunctionsInPlace(t *testing.T) {
	program := os.Getenv("TUTTI_TEST_HOST")
	if program == "" {
		t.Skip("no host: set TUTTI_TEST_HOST to the program examples/host")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agent, session := openSession(ctx, t)
	defer agent.Close()
	defer session.Close()
	startHosts(t, program)
	x := take(t, session)
	for worker := range session.Info.Workers {
		mine := []float32{float32(worker), 2}
		if worker == 0 {
			session.Empty(x, Spec(mine))
		}
		there, err := session.flush(ctx, uint32(worker))
		if err == nil {
			err = there.Write(ctx, session.Name(x), Spec(mine), Bytes(mine))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	session.Call(0, "demo.average", x)
	session.Call(0, "demo.scale", x, 10.0)
	answer, err := session.Call(0, "demo.mean", x).Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	middle := float32(len(session.Info.Workers)-1) / 2
	for worker, value := range Results(answer) {
		if value.GetReal() != float64(10*middle+20)/2 {
			t.Fatalf("worker %d: %v", worker, value)
		}
		holds(ctx, t, session, uint32(worker), x, 10*middle, 20)
	}
	_, err = session.Call(0, "demo.mean", 3).Wait(ctx)
	if found := AsError(err); found == nil || found.Reason != "FUNCTION_FAILED" || !strings.Contains(found.Text, "need a tensor of FP32") {
		t.Fatal(err)
	}
	if err = session.Sync(ctx); err != nil {
		t.Fatal(err)
	}
}
