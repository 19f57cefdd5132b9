package redis_test

import (
	"bytes"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// front relays connections to a server, like a DNS name whose address can change.
type front struct {
	addr string
	mu   sync.Mutex
	next string
	loss float64 // the probability that an answer is lost, and its connection with it
	cuts map[string]*cut

	accepted atomic.Int64 // connections
}

// cut makes one of the requests that contain a text fail, and its connection with it.
type cut struct {
	at, seen int
	made     bool // the server carries it out
}

// cut cuts the n-th request from now on that contains a text.
func (f *front) cut(text string, n int, made bool) (end func() (seen int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &cut{at: n, made: made}
	f.cuts[text] = c
	return func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.cuts, text)
		return c.seen
	}
}

// cutting reports whether a request is to fail, and whether it is carried out nevertheless.
func (f *front) cutting(request []byte) (fails, made bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for text, c := range f.cuts {
		if bytes.Contains(request, []byte(text)) {
			c.seen++
			return c.seen == c.at+1, c.made
		}
	}
	return false, true
}

func relay(t testing.TB, to string) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	f := &front{addr: l.Addr().String(), next: to, cuts: make(map[string]*cut)}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			f.accepted.Add(1)
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
	var unheard atomic.Bool // the answer is lost
	go func() {
		defer out.Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := in.Read(buf)
			if err != nil {
				return
			}
			fails, made := f.cutting(buf[:n])
			unheard.Store(fails)
			if fails && !made {
				return
			}
			if _, err := out.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := out.Read(buf)
		if err != nil || unheard.Load() || f.loses() {
			return
		}
		if _, err := in.Write(buf[:n]); err != nil {
			return
		}
	}
}

// lose makes answers get lost from now on.
func (f *front) lose(probability float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loss = probability
}

func (f *front) loses() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return rand.Float64() < f.loss
}
