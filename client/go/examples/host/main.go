// Host offers functions in Go to an agent on this machine, for everybody who may call functions there:
//
//	tutti-agent --functions demo ...
//	go run ./examples/host 127.0.0.1:7001
//	tutti call demo.mean name:weights
//
// The agent and this process work on the same memory: nothing is copied. If this process dies, the calls that it runs
// fail with HOST_LOST, and the agent goes on. docs/functions.md explains the messages.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math"
	"os"

	"google.golang.org/grpc"

	"tutti"
	"tutti/tuttiv1"
)

// argument is a plain value, or a tensor and its bytes.
type argument struct {
	value *tuttiv1.Value
	spec  *tuttiv1.TensorSpec
	data  []byte // the agent's memory, until the call returns
}

// floats fails where an argument is no tensor of float32.
func (one *argument) floats() error {
	if one.spec.GetDtype() != tuttiv1.Dtype_DTYPE_FP32 {
		return fmt.Errorf("need a tensor of FP32, got %v", one.value)
	}
	return nil
}

func (one *argument) at(place int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(one.data[4*place:]))
}

func (one *argument) put(place int, number float32) {
	binary.LittleEndian.PutUint32(one.data[4*place:], math.Float32bits(number))
}

// ------------------------------------------------------------------------------ the functions

type function struct {
	signature string
	count     int // of arguments
	run       func(host *host, call *tuttiv1.HostCall, arguments []argument) (interface{}, error)
}

var functions = map[string]function{
	"demo.mean":    {"tensor -> float", 1, mean},
	"demo.scale":   {"tensor, float -> null", 2, scale},
	"demo.average": {"tensor -> null", 1, average},
}

// mean is the mean of a tensor's elements.
func mean(_ *host, _ *tuttiv1.HostCall, arguments []argument) (interface{}, error) {
	if err := arguments[0].floats(); err != nil {
		return nil, err
	}
	sum, count := 0.0, len(arguments[0].data)/4
	for place := 0; place < count; place++ {
		sum += float64(arguments[0].at(place))
	}
	return sum / float64(count), nil
}

// scale multiplies a tensor in place.
func scale(_ *host, _ *tuttiv1.HostCall, arguments []argument) (interface{}, error) {
	factor, ok := arguments[1].value.Kind.(*tuttiv1.Value_Real)
	if err := arguments[0].floats(); err != nil || !ok {
		return nil, fmt.Errorf("need a tensor of FP32 and a float, got %v", arguments[1].value)
	}
	for place := 0; place < len(arguments[0].data)/4; place++ {
		arguments[0].put(place, arguments[0].at(place)*float32(factor.Real))
	}
	return nil, nil
}

// average gives every worker the average of all workers' tensors, in place: a collective inside of a function.
func average(host *host, call *tuttiv1.HostCall, arguments []argument) (interface{}, error) {
	tensor := arguments[0].value.GetTensor()
	return nil, host.op(&tuttiv1.HostOp{
		Call: call.Call, Op: "all_reduce", Input: tensor, Output: tensor, ReduceOp: tuttiv1.ReduceOp_REDUCE_OP_AVG,
	})
}

// ------------------------------------------------------------------------------ the host

// host is the stream to the agent. It runs one call after the other, so an answer is that of the last question.
type host struct {
	stream   tuttiv1.FunctionsService_ServeClient
	requests uint64
}

func (host *host) start() error {
	start := &tuttiv1.HostStart{Name: "go, demo", CallsMax: 1}
	for name, one := range functions {
		start.Functions = append(start.Functions, &tuttiv1.FunctionInfo{Name: name, Signature: one.signature})
	}
	if err := host.stream.Send(&tuttiv1.ServeRequest{Kind: &tuttiv1.ServeRequest_Start{Start: start}}); err != nil {
		return err
	}
	_, err := host.stream.Recv() // started, or why not
	return err
}

// op runs a collective for a call, and waits until it has ended.
func (host *host) op(op *tuttiv1.HostOp) error {
	host.requests++
	op.Request = host.requests
	if err := host.stream.Send(&tuttiv1.ServeRequest{Kind: &tuttiv1.ServeRequest_Op{Op: op}}); err != nil {
		return err
	}
	for {
		message, err := host.stream.Recv()
		if err != nil {
			return err
		}
		if cancelled, ok := message.Kind.(*tuttiv1.ServeResponse_Cancel); ok && cancelled.Cancel == op.Call {
			return fmt.Errorf("nobody waits for it any more")
		}
		if done := message.GetDone(); done.GetRequest() == op.Request {
			if done.GetError().GetCode() != 0 {
				return fmt.Errorf("%s", done.Error.Text)
			}
			return nil
		}
	}
}

// run maps a call's tensors, runs its function, and lets go of the tensors.
func (host *host) run(call *tuttiv1.HostCall) (interface{}, error) {
	one, known := functions[call.Function]
	if !known || len(call.Args) != one.count {
		return nil, fmt.Errorf("%s takes %s", call.Function, one.signature)
	}
	arguments := make([]argument, len(call.Args))
	for place, given := range call.Args {
		arguments[place].value = given.Value
		if given.Memory == nil {
			continue
		}
		memory, err := mapMemory(given.Memory)
		if err != nil {
			return nil, err
		}
		defer memory.close()
		arguments[place].spec, arguments[place].data = given.Memory.Spec, memory.data
	}
	return one.run(host, call, arguments)
}

func (host *host) answer(call *tuttiv1.HostCall) error {
	returned := &tuttiv1.HostReturn{Call: call.Call}
	result, err := host.run(call)
	if err == nil {
		returned.Result, err = tutti.ValueOf(result)
	}
	if err != nil {
		returned.Error = &tuttiv1.Error{Code: 10, Reason: "FUNCTION_FAILED", Text: err.Error(), Rank: -1}
	}
	return host.stream.Send(&tuttiv1.ServeRequest{Kind: &tuttiv1.ServeRequest_Returned{Returned: returned}})
}

// serve runs calls until the agent ends the stream.
func (host *host) serve() error {
	for {
		message, err := host.stream.Recv()
		if err != nil {
			return err
		}
		if call := message.GetCall(); call != nil {
			if err = host.answer(call); err != nil {
				return err
			}
		}
	}
}

func main() {
	address := os.Getenv("TUTTI_AGENT")
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	ctx := context.Background()
	agent, err := tutti.Connect(ctx, address, tutti.FromEnvironment())
	if err != nil {
		log.Fatal(err)
	}
	stream, err := agent.Functions.Serve(ctx, grpc.WaitForReady(true))
	if err != nil {
		log.Fatal(err)
	}
	host := &host{stream: stream}
	if err = host.start(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("serving %d functions at %s\n", len(functions), address)
	log.Fatal(host.serve())
}
