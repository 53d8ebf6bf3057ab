package tutti

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"tutti/tuttiv1"
)

const (
	storeService = "/tutti.v1.StoreService/"
	pauseLeast   = 5 * time.Millisecond
	pauseMost    = 200 * time.Millisecond
)

// reading is what may be asked again, since it changes nothing, or nothing further: a lease has the
// number that its Grant is given.
var reading = map[string]bool{
	"Get": true, "MultiGet": true, "Check": true, "Wait": true, "QueueLen": true, "Count": true, "List": true,
	"Grant": true, "KeepAlive": true, "Revoke": true, "Leases": true,
}

// drawToken is a random number other than 0.
func drawToken() (uint64, error) {
	var drawn [8]byte
	if _, err := rand.Read(drawn[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(drawn[:]) | 1, nil
}

// tokenOf is the token of a request that must not count twice; nil = such a request has none.
func tokenOf(request interface{}) *uint64 {
	switch known := request.(type) {
	case *tuttiv1.StoreServiceAddRequest:
		return &known.Token
	case *tuttiv1.StoreServiceAppendRequest:
		return &known.Token
	case *tuttiv1.StoreServiceTakeRequest:
		return &known.Token
	case *tuttiv1.StoreServiceQueuePushRequest:
		return &known.Token
	case *tuttiv1.StoreServiceQueuePopRequest:
		return &known.Token
	case *tuttiv1.StoreServiceGrantRequest: // so that a repeated call finds the lease of the first
		return &known.Lease
	}
	return nil
}

// withToken is the request, with a token that is drawn where the caller gave none.
func withToken(request interface{}) (interface{}, error) {
	if given := tokenOf(request); given == nil || *given != 0 {
		return request, nil
	}
	token, err := drawToken()
	if err != nil {
		return nil, err
	}
	own := proto.Clone(request.(proto.Message))
	*tokenOf(own) = token
	return own, nil
}

// wasThere is whether the server answered, or its connection stood once.
func wasThere(err error) bool {
	text := status.Convert(err).Message()
	switch status.Code(err) {
	case codes.Unavailable: // grpc-go has no code for it
		return !strings.HasPrefix(text, "connection error") && !strings.HasPrefix(text, "last connection error")
	case codes.DeadlineExceeded, codes.Canceled:
		return false
	}
	return true
}

// patience makes calls of the store wait for a coordinator that is started again, as long as their context
// lasts. Calls with a token, which is drawn here, and calls that only read are made again when the connection
// breaks in the middle, and count once. A call that no coordinator has heard of is made again, whatever it is,
// when there are several.
type patience struct {
	answered int32 // the coordinator was there once
	leader   *leader
}

// try makes one attempt. elsewhere: nobody has heard of the call, and there are other coordinators.
func (self *patience) try(ctx context.Context, path string, request, reply interface{}, line *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options []grpc.CallOption) (elsewhere bool, err error) {
	if self.leader == nil {
		return false, invoke(ctx, path, request, reply, line, options...)
	}
	moves := self.leader.count()
	err = invoke(ctx, path, request, reply, line, options...)
	self.leader.follow(err, moves)
	_, other := isNotLeader(err)
	unheard := status.Code(err) == codes.Unavailable && !wasThere(err)
	return (other || unheard) && self.leader.hasOthers(), err
}

func (self *patience) call(ctx context.Context, path string, request, reply interface{}, line *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	again, waits := false, strings.HasPrefix(path, storeService)
	if waits {
		var err error
		if request, err = withToken(request); err != nil {
			return err
		}
		again = tokenOf(request) != nil || reading[strings.TrimPrefix(path, storeService)]
	}
	pause := pauseLeast
	for {
		if waits && atomic.LoadInt32(&self.answered) != 0 && (self.leader == nil || !self.leader.hasOthers()) {
			options = append(options[:len(options):len(options)], grpc.WaitForReady(true))
		}
		elsewhere, err := self.try(ctx, path, request, reply, line, invoke, options)
		if wasThere(err) {
			atomic.StoreInt32(&self.answered, 1)
		}
		broke := status.Code(err) == codes.Unavailable && again && atomic.LoadInt32(&self.answered) != 0
		if !elsewhere && !broke {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
		if pause *= 2; pause > pauseMost {
			pause = pauseMost
		}
	}
}
