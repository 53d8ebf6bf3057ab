package tutti

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"tutti/tuttiv1"
)

// turns is who takes turns at the store, and what went wrong first.
type turns struct {
	ctx   context.Context
	store tuttiv1.StoreServiceClient
	name  string
	err   error
}

func (self *turns) failed(err error) bool {
	if self.err == nil {
		self.err = err
	}
	return self.err != nil
}

func (self *turns) check(what string, err error, said, wanted string) {
	if !self.failed(err) && said != wanted {
		self.err = fmt.Errorf("%s: %s, not %s", what, said, wanted)
	}
}

func (self *turns) add(key string) string {
	said, err := self.store.Add(self.ctx, &tuttiv1.StoreServiceAddRequest{Key: []byte(key), Delta: 1})
	self.failed(err)
	return fmt.Sprint(said.GetValue())
}

func (self *turns) push(queue, value string) string {
	request := &tuttiv1.StoreServiceQueuePushRequest{Key: []byte(queue), Value: []byte(value)}
	said, err := self.store.QueuePush(self.ctx, request)
	self.failed(err)
	return fmt.Sprint(said.GetLength())
}

func (self *turns) pop(queue string) string {
	said, err := self.store.QueuePop(self.ctx, &tuttiv1.StoreServiceQueuePopRequest{Key: []byte(queue)})
	self.failed(err)
	return string(said.GetValue())
}

func (self *turns) take(turn int) {
	value := fmt.Sprintf("%s/%d", self.name, turn)
	self.check("add", nil, self.add("count "+self.name), fmt.Sprint(turn))
	self.add("all")
	self.check("push", nil, self.push("queue "+self.name, value), "1")
	self.check("pop", nil, self.pop("queue "+self.name), value)
	key := []byte("tag " + self.name)
	size, err := self.store.Append(self.ctx, &tuttiv1.StoreServiceAppendRequest{Key: key, Value: []byte(value)})
	self.check("append", err, fmt.Sprint(size.GetSize()), fmt.Sprint(len(value)))
	taken, err := self.store.Take(self.ctx, &tuttiv1.StoreServiceTakeRequest{Key: key})
	self.check("take", err, string(taken.GetValue()), value)
	self.push("shared", value)
	fmt.Println("popped", self.pop("shared"))
}

// watched is what a watch of all keys has told: counters that count, tags that are set and deleted by turns.
type watched struct {
	last    map[string]int
	there   map[string]bool
	version uint64
	changes int
	err     error
}

func (self *watched) hear(said *tuttiv1.StoreServiceWatchResponse) bool {
	key, set := string(said.Entry.Key), said.Kind == tuttiv1.WatchKind_WATCH_KIND_SET
	if said.Kind == tuttiv1.WatchKind_WATCH_KIND_BEGUN {
		fmt.Println("stands")
		return true
	}
	if key == "stop" {
		return false
	}
	self.changes++
	kind := strings.SplitN(key, " ", 2)[0]
	number := self.last[key]
	if set && (kind == "count" || kind == "tag") {
		text := string(said.Entry.Value)
		number, _ = strconv.Atoi(text[strings.LastIndex(text, "/")+1:])
	}
	switch {
	case said.Entry.Version < self.version:
		self.err = fmt.Errorf("%v: an older version", said)
	case kind != "count" && kind != "tag":
	case set && (number != self.last[key]+1 || kind == "tag" && self.there[key]), !set && !self.there[key]:
		self.err = fmt.Errorf("%v behind %d", said, self.last[key])
	default:
		self.last[key], self.there[key] = number, set
	}
	self.version = said.Entry.Version
	return self.err == nil
}

func (self *watched) run(agent *Agent) error {
	self.last, self.there = map[string]int{}, map[string]bool{}
	if err := agent.Watch(context.Background(), nil, self.hear); err != nil {
		return err
	}
	for key, last := range self.last {
		fmt.Println("told", key, last)
	}
	fmt.Println("changes", self.changes)
	return self.err
}

// TestKills is tests/client/kills_program.c in Go, for tests/clients/test_kills.py: TUTTI_TEST_KILLS is
// "AGENT load ID", "AGENT wait ID" or "AGENT watch ID".
func TestKills(t *testing.T) {
	words := strings.Fields(os.Getenv("TUTTI_TEST_KILLS"))
	if len(words) != 3 {
		t.Skip("nobody kills the coordinator")
	}
	agent, err := Connect(context.Background(), words[0])
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	self := &turns{ctx: context.Background(), store: agent.Store, name: words[2]}
	if words[1] == "watch" {
		self.err = new(watched).run(agent)
	} else if words[1] == "wait" {
		self.add("waits " + self.name)
		fmt.Println("popped", self.pop("wait "+self.name))
	} else {
		over := make(chan bool)
		go func() {
			bufio.NewReader(os.Stdin).ReadByte()
			close(over)
		}()
		turn := 0
		for going := true; going && self.err == nil; {
			turn++
			self.take(turn)
			select {
			case <-over:
				going = false
			default:
			}
		}
		fmt.Println("turns", turn)
	}
	if self.err != nil {
		t.Fatal(self.err)
	}
}
