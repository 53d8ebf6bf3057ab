//go:build !linux || !(amd64 || arm64)

package tutti

import (
	"time"

	"google.golang.org/grpc/codes"
)

const laneMessageMax = 16384

var errBrokenLane error

// laneMemory is for Linux on machines that store the lowest byte first.
type laneMemory struct{ busy time.Duration }

func takeLane(string, []byte, time.Time) (*laneMemory, error) {
	return nil, laneError(codes.Unimplemented, "", "lanes are for Linux on amd64 and arm64")
}

func (*laneMemory) close()                        {}
func (*laneMemory) put(uint32, ...[]byte) bool    { return false }
func (*laneMemory) hasSome() bool                 { return false }
func (*laneMemory) isClosed() bool                { return true }
func (*laneMemory) take() ([]byte, uint32, error) { return nil, 0, nil }
func (*laneMemory) sleep(func() bool) error       { return nil }
func (*laneMemory) wakeBy(time.Time)              {}
func (*laneMemory) wake()                         {}
