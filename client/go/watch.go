package tutti

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tutti/tuttiv1"
)

const (
	watchAgain = 30 * time.Second // the coordinator's --retry-window
	watchPause = 100 * time.Millisecond
)

// place is where a watch is, so that another call can go on there.
type place struct {
	history uint64 // 0 = that coordinator keeps none
	version uint64 // of the next change, or of the last ...
	skip    uint32 // ... of which so many were told
	stands  bool   // the caller was told so
	told    func(*tuttiv1.StoreServiceWatchResponse) bool
	lost    time.Time // since then nobody has answered; zero = somebody does
}

// hear is whether to go on.
func (self *place) hear(said *tuttiv1.StoreServiceWatchResponse) bool {
	self.lost = time.Time{}
	version := said.GetEntry().GetVersion()
	switch {
	case said.Kind != tuttiv1.WatchKind_WATCH_KIND_BEGUN && version == self.version:
		self.skip++
	case said.Kind != tuttiv1.WatchKind_WATCH_KIND_BEGUN:
		self.version, self.skip = version, 1
	case self.stands:
		return true
	default:
		self.stands = true
		self.history, self.version = said.History, version+1
	}
	return self.told(said)
}

// hearAll is one call; nil = it was enough.
func (self *place) hearAll(ctx context.Context, agent *Agent, prefix []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := &tuttiv1.StoreServiceWatchRequest{Job: agent.Info.Job, Prefix: prefix}
	if self.history != 0 {
		request.History, request.FromVersion, request.Skip = self.history, self.version, self.skip
	}
	stream, err := agent.Store.Watch(ctx, request)
	if err != nil {
		return err
	}
	for {
		said, err := stream.Recv()
		if err == io.EOF {
			return status.Error(codes.Unavailable, "the coordinator ended the watch")
		}
		if err != nil {
			return err
		}
		if !self.hear(said) {
			return nil
		}
	}
}

// goesOn is whether another call is worth it: whoever served the last one has gone, or none has heard of it.
func (self *place) goesOn(err error, others bool) bool {
	if self.lost.IsZero() {
		self.lost = time.Now()
	}
	if status.Code(err) != codes.Unavailable || time.Since(self.lost) > watchAgain {
		return false
	}
	_, other := isNotLeader(err)
	return self.history != 0 || others && (other || !wasThere(err))
}

// Watch tells each change of keys of the job that begin with a prefix, in order, until told returns false, which is no
// error, or ctx ends. The first response says that the watch stands: read keys of interest then, and no change is
// missed. The watch goes on where it was when the coordinator is started again on its store, or another one leads;
// WATCH_GAP and SLOW_WATCHER mean that this was not possible: read the keys, and watch again.
func (agent *Agent) Watch(ctx context.Context, prefix []byte,
	told func(*tuttiv1.StoreServiceWatchResponse) bool) error {
	self := &place{told: told}
	for {
		moves, others := 0, false
		if agent.leader != nil {
			moves = agent.leader.count()
		}
		err := self.hearAll(ctx, agent, prefix)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if agent.leader != nil {
			agent.leader.follow(err, moves)
			others = agent.leader.hasOthers()
		}
		if !self.goesOn(err, others) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(watchPause):
		}
	}
}
