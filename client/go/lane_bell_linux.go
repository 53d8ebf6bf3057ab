//go:build amd64 || arm64

package tutti

import (
	"syscall"
	"unsafe"
)

// A bell is an eventfd that the agent has, too. It can fill the count and take O_NONBLOCK away, which belongs to the
// open file: a write would block for ever then. So a bell is rung by an operation of the kernel's asynchronous I/O that
// is over at once, and counts the eventfd up without ever waiting (lib/base/os/bell.c says more).

const (
	bellSize     = 1   // of fs.aio-max-nr; the context's page has room for more
	bellEvents   = 128 // that are thrown away at once
	bellTries    = 1000
	iocbPoll     = 5 // IOCB_CMD_POLL
	iocbFlagRing = 1 // IOCB_FLAG_RESFD
	pollOut      = 4
	eventBytes   = 32
)

// iocb is linux/aio_abi.h's, with the lowest byte first.
type iocb struct {
	data          uint64
	key, rwFlags  uint32
	opcode        uint16
	priority      int16
	file          uint32
	buf, bytes    uint64
	offset        int64
	reserved      uint64
	flags, ringFd uint32
}

// A program in Go has no child of fork that goes on: one context is good for as long as it lives.
var bells = newBells()

type bellContext struct {
	context uintptr
	always  uintptr // an eventfd of ours, which can always be written
	failed  syscall.Errno
}

func newBells() *bellContext {
	self := &bellContext{}
	if self.always, _, self.failed = syscall.RawSyscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0); self.failed == 0 {
		_, _, self.failed = syscall.RawSyscall(syscall.SYS_IO_SETUP, bellSize, uintptr(unsafe.Pointer(&self.context)), 0)
	}
	return self
}

// ring never blocks, whatever the agent has done to the bell.
func (self *bellContext) ring(bell int) {
	operation := iocb{opcode: iocbPoll, file: uint32(self.always), buf: pollOut, flags: iocbFlagRing, ringFd: uint32(bell)}
	list := [1]*iocb{&operation}
	for try := 0; try < bellTries; try++ {
		_, _, failed := syscall.RawSyscall(syscall.SYS_IO_SUBMIT, self.context, 1, uintptr(unsafe.Pointer(&list)))
		if failed != syscall.EAGAIN {
			return
		}
		var events [bellEvents * eventBytes]byte
		var now syscall.Timespec
		syscall.RawSyscall6(syscall.SYS_IO_GETEVENTS, self.context, 0, bellEvents, uintptr(unsafe.Pointer(&events)),
			uintptr(unsafe.Pointer(&now)), 0)
	}
}
