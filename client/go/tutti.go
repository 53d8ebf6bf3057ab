// Package tutti runs collectives on tensors that live in Tutti's agents.
//
//	agent, err := tutti.Connect(ctx, "127.0.0.1:7001")
//	sum, err := tutti.AllReduce(ctx, agent, []float32{1, 2, 3}, tuttiv1.ReduceOp_REDUCE_OP_SUM)
//
// Every rank calls the same. An Agent speaks for one rank; all of its services are there as generated
// stubs, and what is tedious with them has a function: tensors of any size, waiting, errors.
package tutti

//go:generate ./generate.sh

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"

	"tutti/tuttiv1"
)

// Agent is a connection to an agent. Any goroutine may use it; ops of one group are matched by order, so
// goroutines that call ops on the same group race for their places in it.
type Agent struct {
	Info        *tuttiv1.DescribeAgentResponse
	Tensors     tuttiv1.TensorsServiceClient
	Collectives tuttiv1.CollectivesServiceClient
	Diagnostics tuttiv1.DiagnosticsServiceClient
	Tracers     tuttiv1.TracersServiceClient
	// Any of these calls as messages of one stream, begun in its order.
	Commands  tuttiv1.CommandsServiceClient
	Functions tuttiv1.FunctionsServiceClient
	// OpenSession is easier.
	Sessions tuttiv1.SessionServiceClient
	// Of the coordinator.
	Coordinator tuttiv1.CoordinatorServiceClient
	Meshes      tuttiv1.MeshServiceClient
	Metadata    tuttiv1.MetadataServiceClient
	Rendezvous  tuttiv1.RendezvousServiceClient
	// Its calls wait for a coordinator that is started again, as long as their context lasts. Add, Append, Take,
	// QueuePush and QueuePop get a token where they have none, and count once, however often they are made.
	Store tuttiv1.StoreServiceClient

	address     string
	options     []Option
	line        *grpc.ClientConn
	lanes       *lanes // nil = all calls go by gRPC
	coordinator *grpc.ClientConn
	leader      *leader // nil = there is one coordinator, of this host
}

// Connect connects to an agent, "host:port" or "unix:/path", and waits until it has joined its job: as long
// as ctx lasts.
func Connect(ctx context.Context, address string, options ...Option) (*Agent, error) {
	lanes := newLanes(options)
	var more []grpc.DialOption
	if lanes != nil {
		more = append(more, grpc.WithUnaryInterceptor(lanes.call))
	}
	line, err := dial(address, options, more...)
	if err != nil {
		return nil, err
	}
	if lanes != nil {
		lanes.line = line
	}
	agent := &Agent{
		Tensors:     tuttiv1.NewTensorsServiceClient(line),
		Collectives: tuttiv1.NewCollectivesServiceClient(line),
		Diagnostics: tuttiv1.NewDiagnosticsServiceClient(line),
		Tracers:     tuttiv1.NewTracersServiceClient(line),
		Commands:    tuttiv1.NewCommandsServiceClient(line),
		Functions:   tuttiv1.NewFunctionsServiceClient(line),
		Sessions:    tuttiv1.NewSessionServiceClient(line),
		address:     address,
		options:     options,
		line:        line,
		lanes:       lanes,
	}
	if err = agent.join(ctx); err != nil {
		agent.Close()
		return nil, err
	}
	return agent, nil
}

// join waits until the agent has joined, and connects to its coordinator.
func (agent *Agent) join(ctx context.Context) error {
	pause := 10 * time.Millisecond
	for {
		info, err := agent.Diagnostics.DescribeAgent(ctx, &tuttiv1.DescribeAgentRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		agent.Info = info
		if info.Joined {
			return agent.meetCoordinator(info.Coordinator)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the agent has not joined job %s: %w", info.Job, ctx.Err())
		case <-time.After(pause):
		}
		if pause *= 2; pause > 500*time.Millisecond {
			pause = 500 * time.Millisecond
		}
	}
}

func (agent *Agent) meetCoordinator(address string) error {
	waits := new(patience)
	connect := func() (*grpc.ClientConn, error) {
		return dial(address, agent.options, grpc.WithUnaryInterceptor(waits.call))
	}
	if !strings.HasPrefix(address, "unix:") {
		waits.leader = newLeader(address, mayFollow(agent.options))
		connect = func() (*grpc.ClientConn, error) {
			return waits.leader.dial(agent.options, grpc.WithUnaryInterceptor(waits.call))
		}
	}
	line, err := connect()
	if err != nil {
		return err
	}
	agent.coordinator = line
	agent.leader = waits.leader
	agent.Coordinator = tuttiv1.NewCoordinatorServiceClient(line)
	agent.Meshes = tuttiv1.NewMeshServiceClient(line)
	agent.Metadata = tuttiv1.NewMetadataServiceClient(line)
	agent.Rendezvous = tuttiv1.NewRendezvousServiceClient(line)
	agent.Store = tuttiv1.NewStoreServiceClient(line)
	return nil
}

// ConnectRank connects to another rank's agent of the same job.
func (agent *Agent) ConnectRank(ctx context.Context, rank uint32) (*Agent, error) {
	request := &tuttiv1.LookupRanksRequest{Job: agent.Info.Job, Ranks: []uint32{rank}}
	found, err := agent.Coordinator.LookupRanks(ctx, request)
	if err != nil {
		return nil, err
	}
	there := found.Ranks[0].GetAgent()
	if len(there.GetAddresses()) == 0 {
		return nil, fmt.Errorf("rank %d has no address, because it is %v: wait until it has joined", rank, found.Ranks[0].State)
	}
	return Connect(ctx, pick(there.GetAddresses(), there.GetHostId()), agent.options...)
}

// hostID says who may share memory, and Unix sockets, with us: who has the same.
func hostID() string {
	if stated := os.Getenv("TUTTI_HOST_ID"); stated != "" {
		return stated
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "none"
	}
	ipc, _ := os.Readlink("/proc/self/ns/ipc")
	return strings.TrimSpace(string(boot)) + "/" + ipc
}

// pick takes the agent's Unix socket on its own host, where the socket is there, else the first address
// that is none.
func pick(addresses []string, host string) string {
	return pickNear(addresses, host == hostID())
}

// pickNear is pick where it is known whether the agent is on this host.
func pickNear(addresses []string, near bool) string {
	if len(addresses) == 0 {
		return ""
	}
	for _, address := range addresses {
		path := strings.TrimPrefix(address, "unix:")
		info, err := os.Stat(path)
		if path != address && near && err == nil && info.Mode()&os.ModeSocket != 0 {
			return address
		}
	}
	for _, address := range addresses {
		if !strings.HasPrefix(address, "unix:") {
			return address
		}
	}
	return addresses[0]
}

// Member says who we are, for calls to the coordinator.
func (agent *Agent) Member() *tuttiv1.Member {
	return &tuttiv1.Member{Job: agent.Info.Job, Rank: agent.Info.Rank, Incarnation: agent.Info.Incarnation}
}

// Close ends the connections. Tensors stay in the agent.
func (agent *Agent) Close() {
	if agent.coordinator != nil {
		agent.coordinator.Close()
	}
	agent.lanes.close()
	agent.line.Close()
}
