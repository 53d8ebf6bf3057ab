package tutti

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"tutti/tuttiv1"
)

const (
	inlineBytesMax = 3 << 20 // of a tensor in one message
	chunkBytes     = 2 << 20 // of a message of a stream
)

// Element is what a slice's elements may be.
type Element interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64 | complex64 | complex128
}

// DtypeOf is the dtype of a slice.
func DtypeOf[T Element]() tuttiv1.Dtype {
	var one T
	switch any(one).(type) {
	case int8:
		return tuttiv1.Dtype_DTYPE_INT8
	case int16:
		return tuttiv1.Dtype_DTYPE_INT16
	case int32:
		return tuttiv1.Dtype_DTYPE_INT32
	case int64:
		return tuttiv1.Dtype_DTYPE_INT64
	case uint8:
		return tuttiv1.Dtype_DTYPE_UINT8
	case uint16:
		return tuttiv1.Dtype_DTYPE_UINT16
	case uint32:
		return tuttiv1.Dtype_DTYPE_UINT32
	case uint64:
		return tuttiv1.Dtype_DTYPE_UINT64
	case float32:
		return tuttiv1.Dtype_DTYPE_FP32
	case float64:
		return tuttiv1.Dtype_DTYPE_FP64
	case complex64:
		return tuttiv1.Dtype_DTYPE_COMPLEX64
	}
	return tuttiv1.Dtype_DTYPE_COMPLEX128
}

// Spec describes a slice as a tensor; no shape = one dimension.
func Spec[T Element](values []T, shape ...int64) *tuttiv1.TensorSpec {
	if len(shape) == 0 {
		shape = []int64{int64(len(values))}
	}
	return &tuttiv1.TensorSpec{Dtype: DtypeOf[T](), Shape: shape}
}

// Bytes are a slice's elements as they travel.
func Bytes[T Element](values []T) []byte {
	var buffer bytes.Buffer
	buffer.Grow(binary.Size(values))
	_ = binary.Write(&buffer, binary.LittleEndian, values) // a buffer takes all
	return buffer.Bytes()
}

// Values are the elements of bytes that travelled as T.
func Values[T Element](data []byte) ([]T, error) {
	var one T
	size := binary.Size(one)
	if len(data)%size != 0 {
		return nil, fmt.Errorf("%d bytes, need a multiple of the element's %d bytes", len(data), size)
	}
	values := make([]T, len(data)/size)
	return values, binary.Read(bytes.NewReader(data), binary.LittleEndian, values)
}

// Upload makes a tensor of any size on the first of the agent's devices; name is optional.
func (agent *Agent) Upload(ctx context.Context, spec *tuttiv1.TensorSpec, data []byte, name string) (*tuttiv1.TensorRef, error) {
	return agent.UploadTo(ctx, "", spec, data, name)
}

// UploadTo makes a tensor where the device says: one of the agent's --device, or "cpu".
func (agent *Agent) UploadTo(ctx context.Context, device string, spec *tuttiv1.TensorSpec, data []byte, name string) (*tuttiv1.TensorRef, error) {
	return agent.upload(ctx, &tuttiv1.UploadStart{Spec: spec, Name: name, Device: device}, data)
}

// Write overwrites a tensor of the same dtype and number of elements, by its handle or name. It waits for what uses it.
func (agent *Agent) Write(ctx context.Context, handle string, spec *tuttiv1.TensorSpec, data []byte) error {
	_, err := agent.upload(ctx, &tuttiv1.UploadStart{Spec: spec, Into: handle}, data)
	return err
}

func (agent *Agent) upload(ctx context.Context, start *tuttiv1.UploadStart, data []byte) (*tuttiv1.TensorRef, error) {
	if len(data) <= inlineBytesMax {
		made, err := agent.Tensors.Put(ctx, &tuttiv1.PutRequest{
			Spec: start.Spec, Name: start.Name, Into: start.Into, Device: start.Device, Payload: data,
		})
		return made.GetTensor(), err
	}
	stream, err := agent.Tensors.Upload(ctx)
	if err != nil {
		return nil, err
	}
	request := &tuttiv1.UploadRequest{Start: start}
	for offset := 0; offset < len(data); offset += chunkBytes {
		end := offset + chunkBytes
		if end > len(data) {
			end = len(data)
		}
		request.Offset, request.Payload = uint64(offset), data[offset:end]
		if stream.Send(request) != nil {
			break // CloseAndRecv says why
		}
		request = &tuttiv1.UploadRequest{}
	}
	made, err := stream.CloseAndRecv()
	return made.GetTensor(), err
}

// Download gives a tensor of any size, by its handle or name. It waits for the op that still writes it.
func (agent *Agent) Download(ctx context.Context, handle string) (*tuttiv1.TensorRef, []byte, error) {
	stream, err := agent.Tensors.Download(ctx, &tuttiv1.DownloadRequest{Handle: handle, ChunkBytes: chunkBytes})
	if err != nil {
		return nil, nil, err
	}
	var ref *tuttiv1.TensorRef
	var data []byte
	for {
		part, err := stream.Recv()
		if err == io.EOF {
			return ref, data, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if part.Tensor != nil {
			ref = part.Tensor
		}
		data = append(data, part.Payload...)
	}
}

// Delete frees tensors, all or none of up to 1024.
func (agent *Agent) Delete(ctx context.Context, handles ...string) error {
	_, err := agent.Tensors.Delete(ctx, &tuttiv1.DeleteRequest{Handles: handles})
	return err
}
