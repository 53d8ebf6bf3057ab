package tutti

import (
	"bytes"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestValuesComeBackAsTheyWere(t *testing.T) {
	data := Bytes([]float32{1, -2})
	if !bytes.Equal(data, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}) {
		t.Fatalf("bytes are %v", data)
	}
	back, err := Values[float32](data)
	if err != nil || len(back) != 2 || back[1] != -2 {
		t.Fatalf("values are %v: %v", back, err)
	}
	if _, err = Values[int64](data[:7]); err == nil {
		t.Fatal("7 bytes made an int64")
	}
}

func TestDetailsBecomeFields(t *testing.T) {
	said, err := status.New(codes.Unavailable, "words").WithDetails(&errdetails.ErrorInfo{
		Reason: "RANK_LOST", Metadata: map[string]string{"group": "world", "sequence": "7", "rank": "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	found := AsError(said.Err())
	if found.Reason != "RANK_LOST" || found.Group != "world" || found.Op != 7 || found.Rank != 2 {
		t.Fatalf("%+v", found)
	}
	if bare := AsError(status.Error(codes.Unavailable, "words")); bare.Reason != "GRPC_STATUS" {
		t.Fatalf("%+v", bare)
	}
	if AsError(errors.New("other")) != nil || AsError(nil) != nil {
		t.Fatal("an error of somebody else's became ours")
	}
}

func TestATokenIsNotSentInPlaintextToOtherMachines(t *testing.T) {
	for address, fine := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, "unix:/x": true, "10.0.0.1:1": false, "host:1": false,
	} {
		line, err := dial(address, []Option{WithTokenFile("/none")})
		if (err == nil) != fine {
			t.Fatalf("%s: %v", address, err)
		}
		if err == nil {
			line.Close()
		}
	}
}

func TestASocketIsForItsOwnHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	both := []string{"unix:" + path, "a:1"}
	if found := pick(both, hostID()); found != both[0] {
		t.Fatalf("here it is %s", found)
	}
	if found := pick(both, "elsewhere"); found != "a:1" {
		t.Fatalf("elsewhere it is %s", found)
	}
	if found := pick([]string{"unix:/nowhere/at/all", "a:1"}, hostID()); found != "a:1" {
		t.Fatalf("without the socket it is %s", found)
	}
}
