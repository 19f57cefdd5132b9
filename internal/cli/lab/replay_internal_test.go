package lab

import (
	"context"
	"errors"
	"io"
	"testing"
)

// An interrupt ends a replay of standard input that receives no data.
func TestInterruptible(t *testing.T) {
	t.Parallel()
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r := &interruptible{ended: ctx.Done(), src: in}
	go out.Write([]byte("abc"))
	buf := make([]byte, 8)
	if n, err := r.Read(buf); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	cancel()
	if _, err := r.Read(buf); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
