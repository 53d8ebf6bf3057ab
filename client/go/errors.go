package tutti

import (
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tutti/tuttiv1"
)

// Error says how a call or op failed. Branch on Code, then on Reason; docs/errors.md lists the reasons.
type Error struct {
	Code   codes.Code
	Reason string // for programs: "SHAPE_MISMATCH"; "GRPC_STATUS" where the server gave none
	Text   string // for people
	Group  string // on which group, or ""
	Op     uint64 // the op's number in that group, or 0
	Rank   int    // the culprit's rank, or -1
	// All that the details say.
	Metadata map[string]string
}

func (err *Error) Error() string {
	if err.Reason == "" {
		return err.Code.String() + ": " + err.Text
	}
	return err.Code.String() + " " + err.Reason + ": " + err.Text
}

// AsError is what a failed call's details say; nil when err is none of gRPC.
func AsError(err error) *Error {
	if known, ok := err.(*Error); ok {
		return known
	}
	said, ok := status.FromError(err)
	if !ok || err == nil {
		return nil
	}
	found := &Error{Code: said.Code(), Text: said.Message(), Rank: -1}
	for _, detail := range said.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			found.learn(info)
		}
	}
	if found.Reason == "" { // of gRPC itself, a proxy or another server
		found.Reason = "GRPC_STATUS"
	}
	return found
}

func (err *Error) learn(info *errdetails.ErrorInfo) {
	err.Reason, err.Metadata, err.Group = info.Reason, info.Metadata, info.Metadata["group"]
	if op, bad := strconv.ParseUint(info.Metadata["sequence"], 10, 64); bad == nil {
		err.Op = op
	}
	if rank, bad := strconv.Atoi(info.Metadata["rank"]); bad == nil {
		err.Rank = rank
	}
}

// ofValue is how an async op failed; nil when it did not.
func ofValue(said *tuttiv1.Error) error {
	if said.GetCode() == 0 {
		return nil
	}
	return &Error{
		Code: codes.Code(said.Code), Reason: said.Reason, Text: said.Text, Group: said.Group,
		Op: said.Sequence, Rank: int(said.Rank),
	}
}
