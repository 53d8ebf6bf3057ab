package tutti

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"tutti/tuttiv1"
)

// Register is a number under which every worker of a session holds a value. 0 is none.
type Register uint32

// Session drives all agents of a group: tutti/v1/session_service.proto says what its commands do.
//
// A command is sent at once, and every worker begins them in the order in which they were sent, so nothing has to
// be waited for in between. Its Ticket tells how it ended; of tickets that nobody asks Sync tells the first error. Any
// goroutine may use a session.
type Session struct {
	Info *tuttiv1.DriveOpened

	agent  *Agent
	stream tuttiv1.SessionService_DriveClient
	cancel context.CancelFunc

	sending sync.Mutex // one message at a time
	lock    sync.Mutex // guards what follows
	last    uint64
	pending map[uint64]*Ticket
	failed  []*Ticket // in the order of their ends
	taken   map[Register]bool
	dropped []Register
	next    Register
	workers map[uint32]*Agent
	ended   error
}

// Ticket is a command that was sent.
type Ticket struct {
	id     uint64
	done   chan struct{}
	answer *tuttiv1.DriveResponse
	err    error
	asked  int32 // somebody waits for it, or has; atomic
}

// OpenSession opens a session that this agent leads; &DriveOpen{} is one of all ranks. ctx is for the opening alone.
// Close it.
func (agent *Agent) OpenSession(ctx context.Context, open *tuttiv1.DriveOpen) (*Session, error) {
	life, cancel := context.WithCancel(context.Background())
	stream, err := agent.Sessions.Drive(life)
	if err != nil {
		cancel()
		return nil, err
	}
	session := &Session{
		agent: agent, stream: stream, cancel: cancel, pending: map[uint64]*Ticket{}, next: 1,
		taken: map[Register]bool{}, workers: map[uint32]*Agent{},
	}
	go session.receive()
	answer, err := session.Send(&tuttiv1.DriveRequest{Command: &tuttiv1.DriveRequest_Open{Open: open}}).Wait(ctx)
	if err == nil && answer.Opened == nil {
		err = errors.New("the agent answered a session without a word about it")
	}
	if err != nil {
		cancel()
		return nil, err
	}
	session.Info = answer.Opened
	for _, register := range answer.Opened.Registers {
		session.taken[Register(register)] = true
	}
	return session, nil
}

// receive gives answers to their tickets, until the stream ends.
func (session *Session) receive() {
	for {
		answer, err := session.stream.Recv()
		session.lock.Lock()
		if err != nil {
			session.ended = err
			if err == io.EOF {
				session.ended = errors.New("the session has ended")
			}
			for _, ticket := range session.pending {
				session.end(ticket, nil, session.ended)
			}
			session.lock.Unlock()
			return
		}
		if ticket := session.pending[answer.Id]; ticket != nil {
			session.end(ticket, answer, errorOf(answer))
		}
		session.lock.Unlock()
	}
}

// end tells who waits; the lock is held.
func (session *Session) end(ticket *Ticket, answer *tuttiv1.DriveResponse, err error) {
	delete(session.pending, ticket.id)
	ticket.answer, ticket.err = answer, err
	if err != nil {
		session.failed = append(session.failed, ticket)
	}
	close(ticket.done)
}

// errorOf is the first error of a command; nil when it went well on all workers.
func errorOf(answer *tuttiv1.DriveResponse) error {
	if err := ofValue(answer.Error); err != nil {
		return err
	}
	if len(answer.Failed) > 0 {
		return ofValue(answer.Failed[0].Error)
	}
	return nil
}

// Send gives any command; its id is set here.
func (session *Session) Send(request *tuttiv1.DriveRequest) *Ticket {
	session.sending.Lock()
	defer session.sending.Unlock()
	ticket := &Ticket{done: make(chan struct{})}
	session.lock.Lock()
	session.last++
	ticket.id = session.last
	if session.ended != nil {
		ticket.err = session.ended
		close(ticket.done)
		session.lock.Unlock()
		return ticket
	}
	session.pending[ticket.id] = ticket
	session.lock.Unlock()
	request.Id = ticket.id
	_ = session.stream.Send(request) // receive says why
	return ticket
}

// Wait is how the command ended, on which workers it failed, and what it gave. The error is that of the first worker.
func (ticket *Ticket) Wait(ctx context.Context) (*tuttiv1.DriveResponse, error) {
	atomic.StoreInt32(&ticket.asked, 1)
	select {
	case <-ticket.done:
		return ticket.answer, ticket.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close waits until all commands have ended, and ends the session: its registers are freed on all workers.
func (session *Session) Close() error {
	err := session.stream.CloseSend()
	for err == nil {
		session.lock.Lock()
		var one *Ticket
		for _, one = range session.pending {
			break
		}
		session.lock.Unlock()
		if one == nil {
			break
		}
		<-one.done
	}
	session.cancel()
	for _, worker := range session.workers {
		worker.Close()
	}
	return err
}

// ------------------------------------------------------------------------------ registers

// Register is a free number: the one that was dropped last, else the lowest that was never given.
func (session *Session) Register() (Register, error) {
	session.lock.Lock()
	defer session.lock.Unlock()
	for len(session.dropped) > 0 {
		last := session.dropped[len(session.dropped)-1]
		session.dropped = session.dropped[:len(session.dropped)-1]
		if !session.taken[last] {
			session.taken[last] = true
			return last, nil
		}
	}
	for ; uint32(session.next) <= session.Info.RegistersMax; session.next++ {
		if found := session.next; !session.taken[found] {
			session.taken[found] = true
			session.next++
			return found, nil
		}
	}
	return 0, fmt.Errorf("all %d registers of the session are taken: drop some", session.Info.RegistersMax)
}

// Name is what each worker calls the register, for requests that take a handle.
func (session *Session) Name(register Register) string {
	return fmt.Sprintf("reg:%s/%d", session.Info.Session, register)
}

// Drop makes registers null everywhere; their numbers are free.
func (session *Session) Drop(registers ...Register) *Ticket {
	drop := &tuttiv1.DriveDrop{}
	for _, register := range registers {
		drop.Registers = append(drop.Registers, uint32(register))
	}
	ticket := session.Send(&tuttiv1.DriveRequest{Command: &tuttiv1.DriveRequest_Drop{Drop: drop}})
	session.lock.Lock()
	defer session.lock.Unlock()
	for _, register := range registers {
		if session.taken[register] {
			delete(session.taken, register)
			session.dropped = append(session.dropped, register)
		}
	}
	return ticket
}

// ------------------------------------------------------------------------------ commands

// Empty makes a tensor of zeros, on these workers; none = on all.
func (session *Session) Empty(into Register, spec *tuttiv1.TensorSpec, workers ...uint32) *Ticket {
	empty := &tuttiv1.DriveEmpty{Into: uint32(into), Spec: spec, Workers: workers}
	return session.Send(&tuttiv1.DriveRequest{Command: &tuttiv1.DriveRequest_Empty{Empty: empty}})
}

// AllReduce gives every worker the reduction of all tensors, in a new one.
func (session *Session) AllReduce(src, into Register, op tuttiv1.ReduceOp) *Ticket {
	reduce := &tuttiv1.DriveReduce{Src: uint32(src), Into: uint32(into), ReduceOp: op}
	return session.Send(&tuttiv1.DriveRequest{Command: &tuttiv1.DriveRequest_AllReduce{AllReduce: reduce}})
}

func move(src, into Register) *tuttiv1.DriveMove {
	return &tuttiv1.DriveMove{Src: uint32(src), Into: uint32(into)}
}

// AllGather joins the tensors of all workers, on all.
func (session *Session) AllGather(src, into Register) *Ticket {
	command := &tuttiv1.DriveRequest_AllGather{AllGather: move(src, into)}
	return session.Send(&tuttiv1.DriveRequest{Command: command})
}

// BroadcastFromWorker0 gives worker 0's tensor to all.
func (session *Session) BroadcastFromWorker0(src, into Register) *Ticket {
	command := &tuttiv1.DriveRequest_BroadcastFromWorker0{BroadcastFromWorker0: move(src, into)}
	return session.Send(&tuttiv1.DriveRequest{Command: command})
}

// ScatterFromWorker0 gives each worker an equal part of worker 0's tensor.
func (session *Session) ScatterFromWorker0(src, into Register) *Ticket {
	command := &tuttiv1.DriveRequest_ScatterFromWorker0{ScatterFromWorker0: move(src, into)}
	return session.Send(&tuttiv1.DriveRequest{Command: command})
}

// GatherToWorker0 joins the tensors of all workers, on worker 0.
func (session *Session) GatherToWorker0(src, into Register) *Ticket {
	command := &tuttiv1.DriveRequest_GatherToWorker0{GatherToWorker0: move(src, into)}
	return session.Send(&tuttiv1.DriveRequest{Command: command})
}

// ValueOf is a Go value as one of a function: nil, an integer, a float, a string, []byte, []int64 (a shape), a Dtype
// or a *Value.
func ValueOf(value interface{}) (*tuttiv1.Value, error) {
	switch known := value.(type) {
	case nil:
		return &tuttiv1.Value{Kind: &tuttiv1.Value_Null{Null: true}}, nil
	case int:
		return &tuttiv1.Value{Kind: &tuttiv1.Value_Integer{Integer: int64(known)}}, nil
	case int64:
		return &tuttiv1.Value{Kind: &tuttiv1.Value_Integer{Integer: known}}, nil
	case float64:
		return &tuttiv1.Value{Kind: &tuttiv1.Value_Real{Real: known}}, nil
	case string:
		return &tuttiv1.Value{Kind: &tuttiv1.Value_Text{Text: known}}, nil
	case []byte:
		return &tuttiv1.Value{Kind: &tuttiv1.Value_Data{Data: known}}, nil
	case []int64:
		return &tuttiv1.Value{Kind: &tuttiv1.Value_Shape{Shape: &tuttiv1.Shape{Dims: known}}}, nil
	case tuttiv1.Dtype:
		return &tuttiv1.Value{Kind: &tuttiv1.Value_Dtype{Dtype: known}}, nil
	case *tuttiv1.Value:
		return known, nil
	}
	return nil, fmt.Errorf("a %T cannot be passed to a function: use an int, a float64, a string, []byte, or a tensor's register", value)
}

// Set gives a register a plain value (ValueOf), on these workers; none = on all.
func (session *Session) Set(into Register, value interface{}, workers ...uint32) *Ticket {
	plain, err := ValueOf(value)
	if err != nil {
		return failedTicket(err)
	}
	set := &tuttiv1.DriveSet{Into: uint32(into), Value: plain, Workers: workers}
	return session.Send(&tuttiv1.DriveRequest{Command: &tuttiv1.DriveRequest_Set{Set: set}})
}

// failedTicket is of a command that could not be sent.
func failedTicket(err error) *Ticket {
	ticket := &Ticket{done: make(chan struct{}), err: err}
	close(ticket.done)
	return ticket
}

// Call calls a function on each worker. Arguments are Registers, and what ValueOf takes. The answer has the results;
// into = 0 keeps them nowhere else.
func (session *Session) Call(into Register, function string, arguments ...interface{}) *Ticket {
	call := &tuttiv1.DriveCall{Callee: &tuttiv1.DriveCall_Function{Function: function}, Into: uint32(into)}
	for _, argument := range arguments {
		if register, ok := argument.(Register); ok {
			call.Args = append(call.Args, &tuttiv1.DriveArg{Kind: &tuttiv1.DriveArg_Register{Register: uint32(register)}})
			continue
		}
		value, err := ValueOf(argument)
		if err != nil {
			return failedTicket(err)
		}
		call.Args = append(call.Args, &tuttiv1.DriveArg{Kind: &tuttiv1.DriveArg_Value{Value: value}})
	}
	return session.Send(&tuttiv1.DriveRequest{Command: &tuttiv1.DriveRequest_Call{Call: call}})
}

// Get is what a register holds on each worker, by its number; of a tensor its handle and spec.
func (session *Session) Get(ctx context.Context, src Register) ([]*tuttiv1.Value, error) {
	get := &tuttiv1.DriveGet{Src: uint32(src)}
	answer, err := session.Send(&tuttiv1.DriveRequest{Command: &tuttiv1.DriveRequest_Get{Get: get}}).Wait(ctx)
	if err != nil {
		return nil, err
	}
	return Results(answer), nil
}

// Results are the values of an answer, by the numbers of workers that have one.
func Results(answer *tuttiv1.DriveResponse) []*tuttiv1.Value {
	var found []*tuttiv1.Value
	for _, one := range answer.GetValues() {
		found = append(found, one.Value)
	}
	return found
}

// Sync waits until all commands so far have ended. Its error is the first of those whose tickets nobody has asked.
func (session *Session) Sync(ctx context.Context) error {
	command := &tuttiv1.DriveRequest_Sync{Sync: &tuttiv1.DriveSync{}}
	if _, err := session.Send(&tuttiv1.DriveRequest{Command: command}).Wait(ctx); err != nil {
		return err
	}
	session.lock.Lock()
	defer session.lock.Unlock()
	var first *Ticket
	for _, ticket := range session.failed {
		if atomic.LoadInt32(&ticket.asked) == 0 && (first == nil || ticket.id < first.id) {
			first = ticket
		}
	}
	session.failed = nil
	if first != nil {
		return first.err
	}
	return nil
}

// ------------------------------------------------------------------------------ bytes

// Worker is the agent of a worker, connected when it is first asked for. The session closes it.
func (session *Session) Worker(ctx context.Context, worker uint32) (*Agent, error) {
	if worker >= uint32(len(session.Info.Workers)) {
		return nil, fmt.Errorf("no worker %d: the session has %d, from 0", worker, len(session.Info.Workers))
	}
	if worker == session.Info.Leader {
		return session.agent, nil
	}
	session.lock.Lock()
	defer session.lock.Unlock()
	if found := session.workers[worker]; found != nil {
		return found, nil
	}
	one := session.Info.Workers[worker]
	near := strings.HasPrefix(session.agent.address, "unix:") && one.Host == session.agent.Info.Host
	found, err := Connect(ctx, pickNear(one.Addresses, near), session.agent.options...)
	if err != nil {
		return nil, err
	}
	session.workers[worker] = found
	return found, nil
}

// flush waits until all commands so far have begun on a worker: what is asked of its agent then comes behind them.
func (session *Session) flush(ctx context.Context, worker uint32) (*Agent, error) {
	agent, err := session.Worker(ctx, worker)
	if err != nil {
		return nil, err
	}
	command := &tuttiv1.DriveRequest_Flush{Flush: &tuttiv1.DriveFlush{Workers: []uint32{worker}}}
	_, err = session.Send(&tuttiv1.DriveRequest{Command: command}).Wait(ctx)
	return agent, err
}

// Put makes a tensor of these bytes on one worker, which get there directly; on the others the register stays as it is.
func (session *Session) Put(ctx context.Context, worker uint32, into Register, spec *tuttiv1.TensorSpec, data []byte) error {
	if _, err := session.Empty(into, spec, worker).Wait(ctx); err != nil {
		return err
	}
	agent, err := session.Worker(ctx, worker)
	if err != nil {
		return err
	}
	return agent.Write(ctx, session.Name(into), spec, data)
}

// Read gives a tensor of one worker. It waits for what writes it.
func (session *Session) Read(ctx context.Context, worker uint32, src Register) (*tuttiv1.TensorRef, []byte, error) {
	agent, err := session.flush(ctx, worker)
	if err != nil {
		return nil, nil, err
	}
	return agent.Download(ctx, session.Name(src))
}
