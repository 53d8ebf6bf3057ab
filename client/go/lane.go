package tutti

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"tutti/tuttiv1"
)

const (
	laneStreamsMax  = 16 // of one Agent: more calls at once go by themselves
	laneCallsBefore = 2  // a program of so few calls has no use for a stream
	laneOpen        = time.Second
	laneAgain       = 2 * time.Second // until the agent is asked again, if that may help
)

// lanes has the calls of an agent that are commands (CommandsService.Run) go through shared memory, when the agent is
// on this host: docs/lanes.md. Each lane has a stream that carries one call at a time, as in libtutti. What has
// options or metadata of its own, or does not fit, goes by itself as before.
type lanes struct {
	line    *grpc.ClientConn
	carried uint64 // calls; atomic
	calls   int32  // atomic, up to laneCallsBefore
	id      uint64 // of commands; atomic

	lock  sync.Mutex // guards what follows
	idle  []*laneStream
	count int
	ask   time.Time // the agent for another one: not before
	never bool
}

// WithoutLane has all calls go by gRPC; so does TUTTI_NO_LANE=1 in the environment.
func WithoutLane() Option {
	return func(known *settings) { known.withoutLane = true }
}

// newLanes is nil where they are not wanted.
func newLanes(options []Option) *lanes {
	if whyNoLane(options) != nil {
		return nil
	}
	return &lanes{}
}

func laneError(code codes.Code, reason, text string) error {
	return &Error{Code: code, Reason: reason, Text: text, Rank: -1}
}

func whyNoLane(options []Option) error {
	var known settings
	for _, option := range options {
		option(&known)
	}
	if off := os.Getenv("TUTTI_NO_LANE"); off != "" && off[0] != '0' {
		return laneError(codes.FailedPrecondition, "LANE_UNWANTED", "TUTTI_NO_LANE="+off+" is in the environment of this process")
	}
	if known.withoutLane {
		return laneError(codes.FailedPrecondition, "LANE_UNWANTED", "this Agent was connected with WithoutLane")
	}
	return nil
}

// CheckLane is nil when small calls of this agent go through shared memory; else AsError of it says why they go by gRPC:
// OTHER_HOST, NO_SHARE_SOCKET, OTHER_USER, LANES_OFF, LANE_LIMIT, LANE_UNWANTED. A lane is made and given back.
func (agent *Agent) CheckLane(ctx context.Context) error {
	if agent.lanes == nil {
		return whyNoLane(agent.options)
	}
	memory, _, err := agent.lanes.request(ctx)
	if err == nil {
		memory.close()
	}
	return err
}

// ------------------------------------------------------------------------------ which calls

// laneCommands has the number of a command by the type of its request: every call has one of its own.
var laneCommands = func() map[protoreflect.FullName]protowire.Number {
	found := map[protoreflect.FullName]protowire.Number{}
	fields := (&tuttiv1.RunRequest{}).ProtoReflect().Descriptor().Oneofs().ByName("command").Fields()
	for place := 0; place < fields.Len(); place++ {
		found[fields.Get(place).Message().FullName()] = fields.Get(place).Number()
	}
	return found
}()

// mayCarry is the command's number, or 0.
func (lanes *lanes) mayCarry(ctx context.Context, request interface{}, options []grpc.CallOption) protowire.Number {
	message, fine := request.(proto.Message)
	if !fine || len(options) != 0 || ctx.Err() != nil {
		return 0
	}
	if _, has := metadata.FromOutgoingContext(ctx); has {
		return 0
	}
	number := laneCommands[message.ProtoReflect().Descriptor().FullName()]
	if number != 0 && atomic.LoadInt32(&lanes.calls) < laneCallsBefore {
		atomic.AddInt32(&lanes.calls, 1)
		return 0
	}
	return number
}

// call is a grpc.UnaryClientInterceptor.
func (lanes *lanes) call(ctx context.Context, method string, request, reply interface{}, line *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if number := lanes.mayCarry(ctx, request, options); number != 0 {
		id := atomic.AddUint64(&lanes.id, 1)
		if packed := packCommand(id, number, request.(proto.Message)); packed != nil {
			if stream := lanes.acquire(ctx); stream != nil {
				again, err := lanes.exchange(ctx, stream, id, number, packed, reply.(proto.Message))
				if !again {
					return err
				}
			}
		}
	}
	return invoke(ctx, method, request, reply, line, options...)
}

// exchange gives the stream back. again: the call has certainly not begun, and shall go by itself.
func (lanes *lanes) exchange(ctx context.Context, stream *laneStream, id uint64, number protowire.Number, packed []byte,
	reply proto.Message,
) (again bool, err error) {
	said, err := stream.exchange(ctx, packed)
	if said == nil {
		again = isUnbegun(stream, err)
		lanes.drop(stream)
		return again, err
	}
	stream.used = true
	atomic.AddUint64(&lanes.carried, 1)
	whole, err := readAnswer(said, id, number, reply)
	if whole && codeOf(err) != codes.Unauthenticated {
		lanes.release(stream)
		return false, err
	}
	// The token that the stream began with has expired: a call of its own reads today's.
	lanes.drop(stream)
	return whole, err
}

// isUnbegun is of a stream that has ended without an answer. A stream that ends well has not read the command; one
// that is refused has read none.
func isUnbegun(stream *laneStream, err error) bool {
	switch codeOf(err) {
	case codes.OK:
		return true
	case codes.Unimplemented, codes.PermissionDenied, codes.ResourceExhausted:
		stream.refused = !stream.used
		return !stream.used
	case codes.Unauthenticated:
		return !stream.used
	case codes.FailedPrecondition:
		return !stream.used && AsError(err).Reason == "NO_LANE"
	}
	return false
}

// ------------------------------------------------------------------------------ which stream

// acquire is an idle stream that is whole, or a new one; nil: the call shall go by itself.
func (lanes *lanes) acquire(ctx context.Context) *laneStream {
	for {
		lanes.lock.Lock()
		last := len(lanes.idle) - 1
		if last < 0 {
			break
		}
		stream := lanes.idle[last] // used last, it is in the caches
		lanes.idle = lanes.idle[:last]
		lanes.lock.Unlock()
		if stream.isWhole() {
			return stream
		}
		lanes.drop(stream)
	}
	fine := !lanes.never && lanes.count < laneStreamsMax && (lanes.ask.IsZero() || time.Now().After(lanes.ask))
	if fine {
		lanes.count++
	}
	lanes.lock.Unlock()
	if !fine {
		return nil
	}
	stream, err := lanes.open(ctx)
	lanes.lock.Lock()
	defer lanes.lock.Unlock()
	if err != nil {
		lanes.count--
		if ctx.Err() == nil { // else it was the caller who did not wait
			lanes.learn(err)
		}
		return nil
	}
	lanes.ask = time.Time{}
	return stream
}

// learn is whether to ask again: lanes of others end, agents come back, tokens are replaced. All else stays. An offer
// that was made for nothing counts for a while, so who cannot reach the socket must not ask again.
func (lanes *lanes) learn(err error) {
	lanes.ask = time.Now().Add(laneAgain)
	found := AsError(err)
	if found != nil && found.Reason == "SHARE_TOKEN" { // the offer was of an agent that is gone
		return
	}
	if found != nil && found.Reason == "NO_SHARE_SOCKET" {
		lanes.never = true
	}
	switch codeOf(err) {
	case codes.ResourceExhausted, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unauthenticated:
	default:
		lanes.never = true
	}
}

func (lanes *lanes) release(stream *laneStream) {
	lanes.lock.Lock()
	lanes.idle = append(lanes.idle, stream)
	lanes.lock.Unlock()
}

// drop ends a stream that is not idle, and what it carries.
func (lanes *lanes) drop(stream *laneStream) {
	stream.close()
	lanes.lock.Lock()
	lanes.count--
	lanes.never = lanes.never || stream.refused
	lanes.lock.Unlock()
}

// request is memory of the agent, and the name by which its stream asks for it.
func (lanes *lanes) request(ctx context.Context) (*laneMemory, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, laneOpen)
	defer cancel()
	due, _ := ctx.Deadline()
	commands := tuttiv1.NewCommandsServiceClient(lanes.line)
	offer, err := commands.OpenLane(ctx, &tuttiv1.OpenLaneRequest{HostId: hostID(), Bell: true})
	if err != nil {
		return nil, nil, err
	}
	memory, err := takeLane(offer.Socket, offer.Token, due)
	return memory, offer.Token, err
}

func (lanes *lanes) open(ctx context.Context) (*laneStream, error) {
	memory, token, err := lanes.request(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := openLaneStream(lanes.line, memory, token)
	if err != nil {
		memory.close()
	}
	return stream, err
}

// close ends the streams that are idle; those that carry a call end with the connection.
func (lanes *lanes) close() {
	if lanes == nil {
		return
	}
	lanes.lock.Lock()
	idle := lanes.idle
	lanes.idle, lanes.never = nil, true
	lanes.lock.Unlock()
	for _, stream := range idle {
		stream.finish()
		lanes.drop(stream)
	}
}
