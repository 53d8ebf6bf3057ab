//go:build amd64 || arm64

package tutti

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

func newBell(t *testing.T) (int, *os.File) {
	fd, _, failed := syscall.Syscall(syscall.SYS_EVENTFD2, 0, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if failed != 0 {
		t.Fatal(failed)
	}
	file := os.NewFile(fd, "bell")
	t.Cleanup(func() { file.Close() })
	return int(fd), file
}

// A socket that does not answer in time, or hangs up, is no reason to ask for lanes never again; one that is not there is.
func TestLaneSocket(t *testing.T) {
	name := fmt.Sprintf("tutti-test-%d", os.Getpid())
	socket, err := net.Listen("unixpacket", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	learned := func(within time.Duration, code codes.Code) bool {
		_, err := takeLane(name, make([]byte, 16), time.Now().Add(within))
		if codeOf(err) != code {
			t.Fatalf("%v, not %v", err, code)
		}
		var asked lanes
		asked.learn(err)
		return asked.never
	}
	if learned(10*time.Millisecond, codes.DeadlineExceeded) {
		t.Error("never again after a socket that did not answer")
	}
	go func() {
		for { // the first connection is the one that was given up
			peer, err := socket.Accept()
			if err != nil {
				return
			}
			peer.Close()
		}
	}()
	if learned(time.Minute, codes.Unavailable) {
		t.Error("never again after a socket that hung up")
	}
	socket.Close()
	if !learned(time.Minute, codes.Unavailable) {
		t.Error("asks again for a socket that is not there")
	}
}

// newSides are a client, and what stands for an agent, over one memory.
func newSides(t *testing.T) (client, agent *laneMemory) {
	data, err := syscall.Mmap(-1, 0, laneBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(data) })
	binary.LittleEndian.PutUint64(data, laneMagic)
	clientBell, clientFile := newBell(t)
	agentBell, agentFile := newBell(t)
	if client, err = newLaneMemory(data, agentBell, clientFile); err != nil {
		t.Fatal(err)
	}
	if agent, err = newLaneMemory(data, clientBell, agentFile); err != nil {
		t.Fatal(err)
	}
	agent.in, agent.out = client.out, client.in
	return client, agent
}

// await takes the next message.
func await(t *testing.T, side *laneMemory) []byte {
	for {
		message, _, err := side.take()
		if err != nil {
			t.Error(err)
		}
		if message != nil || err != nil {
			return message
		}
		if err = side.sleep(side.hasSome); err != nil {
			t.Error(err)
			return nil
		}
	}
}

// TestLaneRing: messages come as they went, also where the ring ends; who sleeps is woken.
func TestLaneRing(t *testing.T) {
	client, agent := newSides(t)
	const turns = 5000
	go func() {
		for turn := 0; turn < turns; turn++ {
			if !agent.put(laneMessage, await(t, agent)) {
				t.Error("no room for an answer")
			}
		}
	}()
	for turn := 0; turn < turns; turn++ {
		message := bytes.Repeat([]byte{byte(turn)}, turn*37%(laneMessageMax+1))
		if !client.put(laneMessage, message[:len(message)/3], message[len(message)/3:]) {
			t.Fatal("no room")
		}
		if back := await(t, client); !bytes.Equal(back, message) {
			t.Fatalf("turn %d: %d bytes came back, not %d", turn, len(back), len(message))
		}
	}
}

// TestBellsThatTheAgentHasSpoilt: whoever has an eventfd can make it full and blocking for all; nobody is held up by it.
func TestBellsThatTheAgentHasSpoilt(t *testing.T) {
	client, agent := newSides(t)
	for _, side := range []*laneMemory{client, agent} {
		most := []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		if _, err := syscall.Write(side.bell, most); err != nil {
			t.Fatal(err)
		}
		if err := syscall.SetNonblock(side.bell, false); err != nil {
			t.Fatal(err)
		}
	}
	over := make(chan bool)
	go func() {
		for turn := byte(0); turn < 100; turn++ {
			client.put(laneMessage, []byte{turn})
			if !bytes.Equal(await(t, agent), []byte{turn}) {
				t.Error("another message came")
			}
			agent.put(laneMessage, []byte{turn})
			await(t, client)
		}
		go client.wake()
		client.sleep(func() bool { return true })
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("a bell holds up who rings it")
	}
}

// TestLaneRingIsFull: what finds no room is not written, and what the reader takes makes room.
func TestLaneRingIsFull(t *testing.T) {
	client, agent := newSides(t)
	message := make([]byte, laneMessageMax)
	count := 0
	for client.put(laneMessage, message) {
		count++
	}
	if count != laneRingBytes/(laneMessageMax+laneHeadBytes) {
		t.Fatalf("%d messages found room", count)
	}
	if client.put(laneMessage, message, message[:1]) {
		t.Fatal("a message found room that no ring has room for")
	}
	if len(await(t, agent)) != laneMessageMax || !client.put(laneMessage, message) {
		t.Fatal("no room behind a message that was taken")
	}
}

// TestLaneRingIsScribbledOver: what makes no sense is told, and nothing outside of the memory is touched.
func TestLaneRingIsScribbledOver(t *testing.T) {
	for name, scribble := range map[string]func(*laneMemory){
		"a position between": func(client *laneMemory) { atomic.StoreUint32(client.in.tail, client.in.own+4) },
		"a position ahead":   func(client *laneMemory) { atomic.StoreUint32(client.in.tail, client.in.own+laneRingBytes+8) },
		"a large message": func(client *laneMemory) {
			binary.LittleEndian.PutUint32(client.in.bytes[client.in.own:], laneMessageMax+1)
		},
		"a message that is not there": func(client *laneMemory) {
			binary.LittleEndian.PutUint32(client.in.bytes[client.in.own:], 100)
		},
	} {
		client, agent := newSides(t)
		agent.put(laneMessage, []byte{1, 2, 3})
		scribble(client)
		if message, _, err := client.take(); err == nil {
			t.Errorf("%s: %d bytes", name, len(message))
		}
	}
	client, _ := newSides(t)
	atomic.StoreUint32(client.out.head, client.out.own+8) // more was read than was written
	if client.put(laneMessage, []byte{1}) {
		t.Error("a ring of which too much was read had room")
	}
	client.data[0]++
	if _, err := newLaneMemory(client.data, 0, client.own); err == nil {
		t.Error("memory of another version is a lane")
	}
}
