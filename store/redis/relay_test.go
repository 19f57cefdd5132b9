package redis_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// front relays connections to a server, like a DNS name whose address can change.
type front struct {
	addr string
	mu   sync.Mutex
	next string
}

func relay(t testing.TB, to string) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	f := &front{addr: l.Addr().String(), next: to}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go f.pass(in)
		}
	}()
	return f
}

// to directs new connections to another address.
func (f *front) to(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = addr
}

func (f *front) pass(in net.Conn) {
	defer in.Close()
	f.mu.Lock()
	addr := f.next
	f.mu.Unlock()
	out, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		defer out.Close()
		_, _ = io.Copy(out, in)
	}()
	_, _ = io.Copy(in, out)
}
