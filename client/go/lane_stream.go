package tutti

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"tutti/tuttiv1"
)

const (
	laneMethod  = "/tutti.v1.CommandsService/Run"
	laneFinish  = 100 * time.Millisecond // for the agent to say that it has heard the end
	laneTick    = 20 * time.Millisecond  // a call that takes no longer has nobody look at its context
	lanePayload = 100                    // the field of RunRequest and RunResponse
)

// What a message of a lane is.
const (
	laneMessage = iota
	laneElsewhere
	laneEnd
)

// rawBytes is the codec of messages that are packed already.
type rawBytes struct{}

func (rawBytes) Marshal(message interface{}) ([]byte, error) { return *message.(*[]byte), nil }
func (rawBytes) Name() string                                { return "proto" }
func (rawBytes) Unmarshal(data []byte, message interface{}) error {
	*message.(*[]byte) = append([]byte{}, data...)
	return nil
}

// laneStream is a stream of commands whose messages go through a lane. gRPC is left with the end of either side, and
// with messages that are too large for the lane.
type laneStream struct {
	memory  *laneMemory
	stream  grpc.ClientStream
	cancel  context.CancelFunc
	large   chan []byte   // from gRPC
	done    chan struct{} // closed: err says how the stream ended
	err     error
	used    bool      // it has carried a call
	refused bool      // nobody gets streams
	due     time.Time // when the memory wakes us anyhow
}

// openLaneStream takes the memory, if it succeeds. The stream outlives the call that it is opened for.
func openLaneStream(line *grpc.ClientConn, memory *laneMemory, token []byte) (*laneStream, error) {
	life, cancel := context.WithCancel(context.Background())
	life = metadata.AppendToOutgoingContext(life, "tutti-lane", hex.EncodeToString(token))
	about := &grpc.StreamDesc{StreamName: "Run", ServerStreams: true, ClientStreams: true}
	stream, err := line.NewStream(life, about, laneMethod, grpc.ForceCodec(rawBytes{}))
	if err != nil {
		cancel()
		return nil, err
	}
	self := &laneStream{
		memory: memory, stream: stream, cancel: cancel, large: make(chan []byte, 1), done: make(chan struct{}),
	}
	go self.hear(life)
	return self, nil
}

// hear reads what comes by gRPC, until the end.
func (self *laneStream) hear(life context.Context) {
	for {
		var message []byte
		if err := self.stream.RecvMsg(&message); err != nil {
			self.err = err
			close(self.done)
			self.memory.wake()
			return
		}
		select {
		case self.large <- message:
		case <-life.Done():
		}
	}
}

func (self *laneStream) hasEnded() bool {
	select {
	case <-self.done:
		return true
	default:
		return false
	}
}

func (self *laneStream) isWhole() bool { return !self.hasEnded() && !self.memory.isClosed() }

// finish says that no more will come, and lets the agent answer, so that it does not count the stream as broken.
func (self *laneStream) finish() {
	if self.memory.put(laneEnd) && self.stream.CloseSend() == nil {
		select {
		case <-self.done:
		case <-time.After(laneFinish):
		}
	}
}

// close ends the stream, and the command that it carries; nobody else uses the stream any more.
func (self *laneStream) close() {
	self.cancel()
	self.memory.close()
}

// ------------------------------------------------------------------------------ one command

// exchange sends a command and gives the answer, good until the next one; nil: how the stream has ended (a nil error:
// well), or the context; then it must be closed.
func (self *laneStream) exchange(ctx context.Context, packed []byte) ([]byte, error) {
	var options []byte
	if !self.used { // the agent need not read ahead: one command at a time
		options = []byte{3<<3 | 2, 2, 2 << 3, 1}
	}
	if !self.memory.put(laneMessage, options, packed) {
		return nil, errBrokenLane // one call at a time always has room
	}
	for {
		over := !self.isWhole() // what the agent wrote last is read first
		message, kind, err := self.memory.take()
		switch {
		case err != nil:
			return nil, err
		case message != nil && kind == laneMessage:
			return message, nil
		case message != nil && kind == laneElsewhere:
			return self.takeLarge(ctx)
		case message != nil:
			return nil, errBrokenLane
		case over:
			return nil, self.end(ctx)
		case ctx.Err() != nil:
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		if err = self.sleep(ctx); err != nil {
			return nil, err
		}
	}
}

// takeLarge is the message whose place a note has kept.
func (self *laneStream) takeLarge(ctx context.Context) ([]byte, error) {
	select {
	case message := <-self.large:
		return message, nil
	default:
	}
	select {
	case message := <-self.large:
		return message, nil
	case <-self.done:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	select {
	case message := <-self.large: // it came before the end
		return message, nil
	default:
		return nil, self.end(ctx)
	}
}

// end waits for how the stream has ended.
func (self *laneStream) end(ctx context.Context) error {
	select {
	case <-self.done:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if self.err == io.EOF {
		return nil
	}
	return self.err
}

// sleep is until there may be something to look at.
//
// The goroutine waits in the runtime's poller, for the eventfd by which the agent wakes it, and not in a futex: a
// system call that blocks keeps its processor of the scheduler until sysmon takes it away, after up to 10 ms, in
// which the other goroutines of that processor stand still; and each call under way would need a thread.
//
// Most calls are answered before anybody could cancel them. So a goroutine that looks at the context is started
// only for a call that is still there when a tick has passed: cancelling is noticed then.
func (self *laneStream) sleep(ctx context.Context) error {
	ready := func() bool { return self.memory.hasSome() || !self.isWhole() || ctx.Err() != nil }
	if self.watchBusy(ready) {
		return nil
	}
	watched := ctx.Done() == nil
	if !watched {
		now := time.Now()
		if self.due.Sub(now) < laneTick/2 {
			self.due = now.Add(laneTick)
			self.memory.wakeBy(self.due)
		}
		if last, has := ctx.Deadline(); has && last.Before(self.due) {
			watched = true
			defer watch(ctx, self.memory.wake)()
		}
	}
	for {
		err := self.memory.sleep(ready)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		self.due = time.Time{}
		self.memory.wakeBy(self.due)
		if !watched {
			watched = true
			defer watch(ctx, self.memory.wake)()
		}
	}
}

// watchBusy looks for as long as the agent says (--busy-poll), so that it need not wake us.
func (self *laneStream) watchBusy(ready func() bool) bool {
	if self.memory.busy == 0 {
		return false
	}
	for until := time.Now().Add(self.memory.busy); time.Now().Before(until); runtime.Gosched() {
		if ready() {
			return true
		}
	}
	return false
}

// watch wakes when ctx is over, until it is stopped.
func watch(ctx context.Context, wake func()) (stop func()) {
	over := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
			wake()
		case <-over:
		}
	}()
	return func() { close(over) }
}

// ------------------------------------------------------------------------------ as protobuf

// takePayload is a message without its payload, and the payload. The message itself stays as it is: others may read it.
func takePayload(message proto.Message) (proto.Message, []byte) {
	old := message.ProtoReflect()
	field := old.Descriptor().Fields().ByName("payload")
	if field == nil || field.Kind() != protoreflect.BytesKind || !old.Has(field) {
		return message, nil
	}
	bare := old.New()
	old.Range(func(one protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if one.Number() != field.Number() {
			bare.Set(one, value)
		}
		return true
	})
	return bare.Interface(), old.Get(field).Bytes()
}

// packCommand is a RunRequest; nil: it does not fit into a lane, or cannot be packed, which gRPC will say.
func packCommand(id uint64, number protowire.Number, request proto.Message) []byte {
	bare, payload := takePayload(request)
	size := proto.Size(bare)
	if size+len(payload)+64 > laneMessageMax {
		return nil
	}
	packed := make([]byte, 0, size+len(payload)+64)
	packed = protowire.AppendTag(packed, 1, protowire.VarintType)
	packed = protowire.AppendVarint(packed, id)
	packed = protowire.AppendTag(packed, number, protowire.BytesType)
	packed = protowire.AppendVarint(packed, uint64(size))
	packed, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(packed, bare)
	if err != nil {
		return nil
	}
	if len(payload) != 0 {
		packed = protowire.AppendTag(packed, lanePayload, protowire.BytesType)
		packed = protowire.AppendBytes(packed, payload)
	}
	return packed
}

// answer is a RunResponse whose result is not unpacked.
type answer struct {
	id              uint64
	kind            protowire.Number // of the result; 2 = an error
	result, payload []byte
}

func splitAnswer(data []byte) (said answer, fine bool) {
	for len(data) > 0 {
		number, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return said, false
		}
		data = data[size:]
		switch {
		case number == 1 && kind == protowire.VarintType:
			said.id, size = protowire.ConsumeVarint(data)
		case number == lanePayload && kind == protowire.BytesType:
			said.payload, size = protowire.ConsumeBytes(data)
		case kind == protowire.BytesType:
			said.kind = number
			said.result, size = protowire.ConsumeBytes(data)
		default:
			size = protowire.ConsumeFieldValue(number, kind, data)
		}
		if size < 0 {
			return said, false
		}
		data = data[size:]
	}
	return said, true
}

// readAnswer fills the reply. whole: the answer made sense, whatever it says.
func readAnswer(data []byte, id uint64, number protowire.Number, reply proto.Message) (whole bool, err error) {
	said, fine := splitAnswer(data)
	if !fine || said.id != id || said.kind != number && said.kind != 2 {
		return false, status.Error(codes.DataLoss, fmt.Sprintf("the agent answered call %d with %d instead of call %d with %d",
			said.id, said.kind, id, number))
	}
	if said.kind == 2 {
		failed := &tuttiv1.Error{}
		if err = proto.Unmarshal(said.result, failed); err != nil {
			return false, status.Error(codes.DataLoss, "the agent sent a malformed error: "+err.Error())
		}
		return true, asStatus(failed)
	}
	if err = proto.Unmarshal(said.result, reply); err != nil {
		return false, status.Error(codes.DataLoss, "the agent sent a malformed answer: "+err.Error())
	}
	if len(said.payload) != 0 {
		message := reply.ProtoReflect()
		if field := message.Descriptor().Fields().ByName("payload"); field != nil {
			message.Set(field, protoreflect.ValueOfBytes(append([]byte{}, said.payload...)))
		}
	}
	return true, nil
}

// asStatus is the error of a unary call, with the same details.
func asStatus(said *tuttiv1.Error) error {
	code := codes.Code(said.Code)
	info := &errdetails.ErrorInfo{Reason: said.Reason, Domain: "tutti", Metadata: map[string]string{}}
	if info.Reason == "" {
		info.Reason = nameOf(code)
	}
	for key, value := range map[string]string{"group": said.Group, "scope": said.Scope} {
		if value != "" {
			info.Metadata[key] = value
		}
	}
	if said.Sequence != 0 {
		info.Metadata["sequence"] = fmt.Sprint(said.Sequence)
	}
	if said.Rank >= 0 {
		info.Metadata["rank"] = fmt.Sprint(said.Rank)
	}
	plain := status.New(code, said.Text)
	if full, err := plain.WithDetails(info); err == nil {
		return full.Err()
	}
	return plain.Err()
}

// nameOf is INVALID_ARGUMENT of InvalidArgument.
func nameOf(code codes.Code) string {
	if code == codes.Canceled {
		return "CANCELLED"
	}
	var name []rune
	for place, letter := range code.String() {
		if letter < 'a' && place > 0 {
			name = append(name, '_')
		}
		if letter >= 'a' {
			letter -= 'a' - 'A'
		}
		name = append(name, letter)
	}
	return string(name)
}

// codeOf is that of gRPC's errors, and of ours.
func codeOf(err error) codes.Code {
	if known, ok := err.(*Error); ok {
		return known.Code
	}
	return status.Code(err)
}
