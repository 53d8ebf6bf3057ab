//go:build amd64 || arm64

package tutti

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The memory of a lane, as docs/lanes.md describes it. The side of the client: it writes the ring down, and reads
// the ring up.
const (
	laneMagic      = 0x31656e616c747474 // "tttlane1"
	laneRingBytes  = 65536
	laneDown       = 64  // positions and flags of a direction, ...
	laneUp         = 256 // ... of which each has a cache line
	laneDownBytes  = 448
	laneUpBytes    = laneDownBytes + laneRingBytes
	laneBytes      = laneUpBytes + laneRingBytes
	laneHeadBytes  = 8
	laneAtBell     = 2 // how a client sleeps that has a bell
	laneMessageMax = 16384
	laneBusyMax    = 10 * time.Millisecond
)

const (
	fcntlGetSeals = 1034
	sealShrink    = 2
)

var errBrokenLane = status.Error(codes.DataLoss, "the lane's memory has positions or sizes that no server writes")

type laneRing struct {
	bytes                       []byte
	tail, head, sleeps, crowded *uint32
	own                         uint32 // our position: the shared one is never read back
}

// laneMemory is for one goroutine at a time, but for wake.
type laneMemory struct {
	data     []byte
	closed   *uint32
	busy     time.Duration
	out, in  laneRing
	bell     int      // wakes the agent
	own      *os.File // wakes us: in the runtime's poller
	raw      syscall.RawConn
	lease    net.Conn // the agent sees its end
	received []byte
}

func (memory *laneMemory) word(offset int) *uint32 {
	return (*uint32)(unsafe.Pointer(&memory.data[offset]))
}

func (memory *laneMemory) ring(way, bytes int) laneRing {
	return laneRing{
		bytes: memory.data[bytes : bytes+laneRingBytes], tail: memory.word(way), head: memory.word(way + 64),
		sleeps: memory.word(way + 128), crowded: memory.word(way + 132),
	}
}

// newLaneMemory is over memory that is mapped; [moved] own.
func newLaneMemory(data []byte, bell int, own *os.File) (*laneMemory, error) {
	if len(data) != laneBytes || binary.LittleEndian.Uint64(data) != laneMagic {
		return nil, &Error{
			Code: codes.DataLoss, Rank: -1,
			Text: fmt.Sprintf("the agent sent %d bytes for a lane that are none of this version", len(data)),
		}
	}
	raw, err := own.SyscallConn()
	if err != nil {
		return nil, err
	}
	memory := &laneMemory{data: data, bell: bell, own: own, raw: raw, received: make([]byte, laneMessageMax)}
	memory.closed = memory.word(16)
	memory.busy = time.Duration(binary.LittleEndian.Uint64(data[8:]))
	if memory.busy < 0 || memory.busy > laneBusyMax {
		memory.busy = laneBusyMax
	}
	memory.out, memory.in = memory.ring(laneDown, laneDownBytes), memory.ring(laneUp, laneUpBytes)
	return memory, nil
}

// ------------------------------------------------------------------------------ where it comes from

// socketError is of an agent that did not answer in time, or is gone: the next one may.
func socketError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return laneError(codes.DeadlineExceeded, "", "the agent's socket for shared memory did not answer in time")
	}
	return laneError(codes.Unavailable, "", "the agent's socket for shared memory: "+err.Error())
}

// showToken gets the descriptors for a token: memory, bell, our bell.
func showToken(socket net.Conn, token []byte) ([]int, error) {
	answer, control := make([]byte, 25), make([]byte, syscall.CmsgSpace(4*4))
	// Who is refused is told so at once, and nothing more is read of it: then the write fails.
	if _, err := socket.Write(append([]byte("tthello1"), token...)); err != nil && !errors.Is(err, syscall.EPIPE) {
		return nil, socketError(err)
	}
	size, controls, _, _, err := socket.(*net.UnixConn).ReadMsgUnix(answer, control)
	if err == nil && size == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, socketError(err)
	}
	fds := descriptorsOf(control[:controls])
	if size == 24 && string(answer[:8]) == "ttshare1" {
		switch binary.LittleEndian.Uint32(answer[8:]) {
		case 0:
			return fds, nil
		case 2:
			err = laneError(codes.PermissionDenied, "OTHER_USER", "the agent shares memory with processes of its own "+
				"user only: run as that user, or give the agent --share-any-user")
		default:
			err = laneError(codes.PermissionDenied, "SHARE_TOKEN", "the agent does not know this token: a token is "+
				"good once, for 5 s")
		}
	} else {
		err = laneError(codes.DataLoss, "", "the agent's socket for shared memory sent a malformed answer")
	}
	closeAll(fds)
	return nil, err
}

func descriptorsOf(control []byte) []int {
	var found []int
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for place := range messages {
		fds, err := syscall.ParseUnixRights(&messages[place])
		if err == nil {
			found = append(found, fds...)
		}
	}
	for _, fd := range found {
		syscall.CloseOnExec(fd)
	}
	return found
}

func closeAll(fds []int) {
	for _, fd := range fds {
		syscall.Close(fd)
	}
}

// mapLane maps what can never shrink.
func mapLane(fd int) ([]byte, error) {
	var about syscall.Stat_t
	seals, _, failed := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), fcntlGetSeals, 0)
	if failed != 0 || seals&sealShrink == 0 || syscall.Fstat(fd, &about) != nil || about.Size < laneBytes {
		return nil, laneError(codes.DataLoss, "", "the memory that the agent sent cannot be mapped safely: it may become smaller")
	}
	return syscall.Mmap(fd, 0, laneBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

// takeLane shows a token at the agent's socket, as lib/share does; deadline bounds it.
func takeLane(name string, token []byte, deadline time.Time) (*laneMemory, error) {
	socket, err := net.Dial("unixpacket", "@"+name)
	if err != nil {
		return nil, laneError(codes.Unavailable, "NO_SHARE_SOCKET", "could not connect to the agent's socket for shared "+
			"memory: "+err.Error()+"; this program and the agent need one network namespace")
	}
	if err = socket.SetDeadline(deadline); err != nil {
		socket.Close()
		return nil, err
	}
	fds, err := showToken(socket, token)
	if err != nil {
		socket.Close()
		return nil, err
	}
	memory, err := openLane(fds)
	if err != nil {
		closeAll(fds)
		socket.Close()
		return nil, err
	}
	syscall.Close(fds[0])
	memory.lease = socket
	return memory, nil
}

// openLane takes the second and the third descriptor, if it succeeds.
func openLane(fds []int) (*laneMemory, error) {
	if len(fds) != 3 {
		return nil, laneError(codes.Unimplemented, "", fmt.Sprintf("the agent sent %d descriptors for a lane, need 3: it is of "+
			"another version", len(fds)))
	}
	if bells.failed != 0 {
		return nil, laneError(codes.Unimplemented, "", "this program cannot ring the bell of a lane: "+bells.failed.Error())
	}
	data, err := mapLane(fds[0])
	if err != nil {
		return nil, err
	}
	again, err := syscall.Dup(fds[2])
	if err != nil {
		syscall.Munmap(data)
		return nil, err
	}
	syscall.CloseOnExec(again)
	own := os.NewFile(uintptr(again), "bell of a lane")
	memory, err := newLaneMemory(data, fds[1], own)
	if err != nil {
		own.Close()
		syscall.Munmap(data)
		return nil, err
	}
	syscall.Close(fds[2])
	return memory, nil
}

// close lets all go; nobody waits any more.
func (memory *laneMemory) close() {
	publish(memory.closed, 1)
	memory.wakeAgent()
	memory.own.Close()
	syscall.Close(memory.bell)
	syscall.Munmap(memory.data)
	if memory.lease != nil {
		memory.lease.Close()
	}
}

// ------------------------------------------------------------------------------ messages

// publish stores what the agent looks at, before what the agent stores is looked at. Atomics of Go are sequentially consistent,
// so StoreUint32 would do; but the race detector's are not (a store there is a release alone), and a wake-up was lost.
func publish(word *uint32, value uint32) { atomic.SwapUint32(word, value) }

// wakeAgent is behind what was published.
func (memory *laneMemory) wakeAgent() {
	if atomic.LoadUint32(memory.out.sleeps) != 0 && atomic.SwapUint32(memory.out.sleeps, 0) != 0 {
		bells.ring(memory.bell)
	}
}

func roomFor(bytes int) uint32 { return uint32((laneHeadBytes + bytes + 7) / 8 * 8) }

func (ring *laneRing) copyIn(at uint32, part []byte) {
	copied := copy(ring.bytes[at%laneRingBytes:], part)
	copy(ring.bytes, part[copied:])
}

func (ring *laneRing) copyOut(at uint32, part []byte) {
	copied := copy(part, ring.bytes[at%laneRingBytes:])
	copy(part[copied:], ring.bytes)
}

// put writes one message in parts. False: there is no room.
func (memory *laneMemory) put(kind uint32, parts ...[]byte) bool {
	ring := &memory.out
	bytes := 0
	for _, part := range parts {
		bytes += len(part)
	}
	used := ring.own - atomic.LoadUint32(ring.head)
	if bytes > laneMessageMax || used > laneRingBytes || roomFor(bytes) > laneRingBytes-used {
		return false
	}
	var head [laneHeadBytes]byte
	binary.LittleEndian.PutUint32(head[:], uint32(bytes))
	binary.LittleEndian.PutUint32(head[4:], kind)
	ring.copyIn(ring.own, head[:])
	at := ring.own + laneHeadBytes
	for _, part := range parts {
		ring.copyIn(at, part)
		at += uint32(len(part))
	}
	ring.own += roomFor(bytes)
	publish(ring.tail, ring.own)
	memory.wakeAgent()
	return true
}

func (memory *laneMemory) hasSome() bool { return atomic.LoadUint32(memory.in.tail) != memory.in.own }

func (memory *laneMemory) isClosed() bool { return atomic.LoadUint32(memory.closed) != 0 }

// take is the next message, good until the next take; nil, 0, nil = there is none. The head is copied before it is
// looked at.
func (memory *laneMemory) take() ([]byte, uint32, error) {
	ring := &memory.in
	used := atomic.LoadUint32(ring.tail) - ring.own
	if used == 0 {
		return nil, 0, nil
	}
	var head [laneHeadBytes]byte
	if used > laneRingBytes || used%8 != 0 {
		return nil, 0, errBrokenLane
	}
	ring.copyOut(ring.own, head[:])
	bytes, kind := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
	if bytes > laneMessageMax || roomFor(int(bytes)) > used {
		return nil, 0, errBrokenLane
	}
	message := memory.received[:bytes]
	ring.copyOut(ring.own+laneHeadBytes, message)
	ring.own += roomFor(int(bytes))
	publish(ring.head, ring.own)
	if atomic.LoadUint32(ring.crowded) != 0 && atomic.SwapUint32(ring.crowded, 0) != 0 {
		memory.wakeAgent()
	}
	return message, kind, nil
}

// ------------------------------------------------------------------------------ sleeping

// sleep parks the goroutine until ready; whoever makes it so calls wake. The agent wakes by itself for a message and
// for the end. os.ErrDeadlineExceeded: what wakeBy said has passed.
func (memory *laneMemory) sleep(ready func() bool) error {
	err := memory.raw.Read(func(uintptr) bool {
		if ready() {
			return true
		}
		publish(memory.in.sleeps, laneAtBell)
		return ready()
	})
	atomic.StoreUint32(memory.in.sleeps, 0)
	return err
}

// wakeBy ends a sleep then; zero = never.
func (memory *laneMemory) wakeBy(due time.Time) { memory.own.SetReadDeadline(due) }

// wake may come from any goroutine. The poller tells of each ring, so nobody has to read the bell.
func (memory *laneMemory) wake() {
	memory.raw.Control(func(fd uintptr) { bells.ring(int(fd)) })
}
