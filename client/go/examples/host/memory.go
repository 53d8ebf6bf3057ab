package main

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"tutti/tuttiv1"
)

// memory is a tensor's bytes, mapped; the agent lends them as long as the socket is open.
type memory struct {
	data   []byte
	socket int
}

// mapMemory gives a token, and gets a file descriptor: TensorsService.Share says how.
func mapMemory(offer *tuttiv1.TensorMemory) (*memory, error) {
	if len(offer.IpcHandle) > 0 {
		return nil, fmt.Errorf("%s is on a GPU, and this host takes tensors in host memory", offer.Handle)
	}
	if len(offer.Token) == 0 || offer.ByteCount == 0 {
		return &memory{socket: -1}, nil // a tensor without bytes
	}
	socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	found := &memory{socket: socket}
	if err = found.ask(offer); err != nil {
		found.close()
		return nil, fmt.Errorf("could not map a tensor: %w", err)
	}
	return found, nil
}

func (found *memory) ask(offer *tuttiv1.TensorMemory) error {
	// The @ stands for the 0 byte of the abstract namespace.
	if err := syscall.Connect(found.socket, &syscall.SockaddrUnix{Name: "@" + offer.Socket}); err != nil {
		return err
	}
	if _, err := syscall.Write(found.socket, append([]byte("tthello1"), offer.Token...)); err != nil {
		return err
	}
	answer, rights := make([]byte, 24), make([]byte, syscall.CmsgSpace(4))
	size, rightsSize, _, _, err := syscall.Recvmsg(found.socket, answer, rights, syscall.MSG_CMSG_CLOEXEC)
	if err != nil {
		return err
	}
	if size != len(answer) || string(answer[:8]) != "ttshare1" || binary.LittleEndian.Uint32(answer[8:]) != 0 {
		return fmt.Errorf("the agent refused the token")
	}
	return found.mapDescriptor(rights[:rightsSize], int(offer.ByteCount))
}

func (found *memory) mapDescriptor(rights []byte, size int) error {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("the agent sent no descriptor: %v", err)
	}
	descriptors, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(descriptors) != 1 {
		return fmt.Errorf("the agent sent no descriptor: %v", err)
	}
	defer syscall.Close(descriptors[0])
	found.data, err = syscall.Mmap(descriptors[0], 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return err
}

func (found *memory) close() {
	if found.data != nil {
		_ = syscall.Munmap(found.data)
	}
	if found.socket >= 0 {
		_ = syscall.Close(found.socket)
	}
}
