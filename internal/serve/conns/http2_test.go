package conns_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirlimits/weir/internal/serve/conns"
)

// wire is an HTTP/2 connection whose frames are counted.
type wire struct {
	*http2.Framer

	client net.Conn
	conn   *conns.Conn
	http2  *conns.HTTP2
	read   *atomic.Int64 // bytes
	ended  chan error
}

// wired returns a connection that is read until it ends, and on which answers can be written.
func wired(f *fixture, budget *conns.Budget, principal string) *wire {
	client, c := f.dial("1.1.1.1:1")
	w := &wire{http2.NewFramer(client, client), client, c, conns.NewHTTP2(c, budget), new(atomic.Int64), make(chan error, 1)}
	if principal != "" {
		c.Authenticate(principal)
	}
	go func() {
		_, err := io.Copy(counter{w.read}, w.http2)
		w.http2.Close()
		w.ended <- err
	}()
	_, _ = io.WriteString(client, http2.ClientPreface)
	return w
}

// counter counts what is written to it.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// send sends the beginning of a message.
func (w *wire) send(stream uint32, size int) error {
	err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: make([]byte, 20), EndHeaders: true})
	for ; err == nil && size > 0; size -= 16 << 10 {
		err = w.WriteData(stream, false, make([]byte, min(size, 16<<10)))
	}
	return err
}

// answer ends a stream once its request was read.
func (w *wire) answer(stream uint32) {
	synctest.Wait()
	var b bytes.Buffer
	_ = http2.NewFramer(&b, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndStream: true, EndHeaders: true})
	go func() { _, _ = io.CopyN(io.Discard, w.client, int64(b.Len())) }()
	for _, c := range b.Bytes() { // however it is divided
		_, _ = w.http2.Write([]byte{c})
	}
}

// TestUnfinished checks that a connection whose unfinished requests hold too much is not read until some have ended, that
// it is closed if they do not end, and that others can be read meanwhile.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	for _, ends := range []string{"answered", "reset", "never"} {
		t.Run(ends, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := setup(t, conns.Bounds{Authenticated: 9})
				budget := conns.NewBudget(4 << 20)
				w := wired(f, budget, "a")
				if ends == "reset" {
					for i := range uint32(100) {
						if err := w.send(2*i+1, 1<<20); err != nil {
							t.Fatal(err)
						}
						if err := w.WriteRSTStream(2*i+1, http2.ErrCodeCancel); err != nil {
							t.Fatal(err)
						}
					}
					return
				}
				sent := 0
				go func() {
					for id := uint32(1); w.send(id, 1<<20) == nil; id += 2 {
						sent++
					}
				}()
				synctest.Wait()
				if sent != 2 && sent != 3 { // three quarters of the budget
					t.Errorf("%d messages were read", sent)
				}
				other := wired(f, budget, "b")
				if err := other.send(1, 512<<10); err != nil {
					t.Errorf("another: %v", err)
				}
				if ends == "answered" {
					before := sent
					w.answer(1)
					synctest.Wait()
					if sent != before+1 {
						t.Errorf("%d messages were read after one was answered", sent-before)
					}
				}
				began := time.Now()
				if err := <-w.ended; err == nil || time.Since(began) > 10*time.Second {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
				if err := other.send(3, 2<<20); err != nil {
					t.Errorf("what it held is not free: %v", err)
				}
			})
		})
	}
}

// TestFewFree checks what the unfinished requests of many connections of one principal hold, each of them little: three
// quarters of the budget, and 16 KiB each.
func TestFewFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, budget := setup(t, conns.Bounds{Authenticated: 99}), conns.NewBudget(1<<20)
		var all []*wire
		for range 60 {
			w := wired(f, budget, "a")
			go func() { _ = w.send(1, 40<<10) }()
			all = append(all, w)
		}
		time.Sleep(11 * time.Second)
		held, most := int64(0), int64(1<<20*3/4)
		for _, w := range all {
			if len(w.ended) == 0 {
				held, most = held+w.read.Load(), most+16<<10
			}
		}
		if held > most || held < 1<<19 {
			t.Errorf("unfinished requests hold %d bytes, want at most %d", held, most)
		}
	})
}

// TestNobodyKeepsAllWaiting checks that a token that needs more at once than it may have, because of what others hold, keeps
// no other waiting.
func TestNobodyKeepsAllWaiting(t *testing.T) {
	t.Parallel()
	for _, streams := range []int{990, 1800} {
		synctest.Test(t, func(t *testing.T) {
			f, budget := setup(t, conns.Bounds{Authenticated: 9}), conns.NewBudget(64<<20)
			a, e := conns.Hold{Budget: budget}, conns.Hold{Budget: budget}
			if !a.Add(t.Context(), "a", 48<<20, 0) || !e.Add(t.Context(), "e", 8<<20, 0) {
				t.Fatal("a token does not get three quarters")
			}
			b := wired(f, budget, "b")
			var flood bytes.Buffer
			fr := http2.NewFramer(&flood, nil)
			for i := range streams {
				_ = fr.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, uint32(2*i+1), nil)
			}
			go func() { _, _ = b.client.Write(flood.Bytes()) }()
			synctest.Wait()
			if open := len(b.ended) == 0; open != (streams <= 1000) {
				t.Errorf("a connection with %d streams: open %t", streams, open)
			}
			c := conns.Hold{Budget: budget}
			if !c.Add(t.Context(), "c", 32<<10, 0) {
				t.Error("32 KiB are refused, and 8 MiB are free")
			}
			c.Close()
			began, d := time.Now(), wired(f, budget, "d")
			for id := uint32(1); id < 7; id += 2 {
				if err := d.send(id, 100); err != nil {
					t.Errorf("disconnected after %s: %v", time.Since(began), err)
				}
			}
			if err := d.WritePing(false, [8]byte{}); err != nil || time.Since(began) != 0 {
				t.Errorf("three small requests were read after %s: %v", time.Since(began), err)
			}
			a.Close()
			e.Close()
		})
	}
}

// TestClosedWhileWaiting checks that a connection that is not read ends as soon as it is closed, and that what it held is
// then free.
func TestClosedWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, budget := setup(t, conns.Bounds{Authenticated: 9}), conns.NewBudget(1<<20)
		w := wired(f, budget, "a")
		go func() { _ = w.send(1, 2<<20) }()
		synctest.Wait()
		began := time.Now()
		w.conn.Close() // as when it makes room for another
		if err := <-w.ended; err == nil || time.Since(began) != 0 {
			t.Errorf("ended after %s: %v", time.Since(began), err)
		}
		hold := conns.Hold{Budget: budget}
		if !hold.Add(t.Context(), "a", 700<<10, 0) {
			t.Error("what it held is not free")
		}
	})
}

// TestAddTogether checks that each of several calls that add to a hold at once waits for what it adds alone.
func TestAddTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const unit = 16 << 10
		budget := conns.NewBudget(4 * unit)
		others := []*conns.Hold{{Budget: budget}, {Budget: budget}}
		if !others[0].Add(t.Context(), "b", 3*unit, 0) || !others[1].Add(t.Context(), "c", unit, 0) {
			t.Fatal("the budget is not free")
		}
		hold := conns.Hold{Budget: budget}
		var wg sync.WaitGroup
		for _, n := range []int{2 * unit, unit} {
			wg.Go(func() {
				if !hold.Add(t.Context(), "a", n, time.Second) {
					t.Errorf("%d bytes were refused, and three quarters of the budget are free", n)
				}
			})
			synctest.Wait()
		}
		others[0].Close()
		wg.Wait()
		hold.Close()
		if last := (conns.Hold{Budget: budget}); !last.Add(t.Context(), "d", 3*unit, 0) {
			t.Error("not all is free again")
		}
	})
}

// TestManyRequests checks that an HTTP/2 connection is open however many requests it carries one after the other: nothing of
// them counts once they are answered.
func TestManyRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, conns.Bounds{Authenticated: 9, Headers: conns.NewBudget(1 << 20)})
		w := wired(f, conns.NewBudget(1<<20), "a")
		for n := range uint32(100) {
			if err := w.send(2*n+1, 32<<10); err != nil {
				t.Fatalf("closed after %d requests of 32 KiB: %v", n, <-w.ended)
			}
			w.answer(2*n + 1)
		}
	})
}

// TestAbuse checks that a connection is closed if it is unauthenticated and holds more than a few small requests, or if its
// requests are only made to be reset or refused.
func TestAbuse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, principal string
		stream          func(w *wire, id uint32) error
		most            int
	}{
		{"streams without authentication", "", func(w *wire, id uint32) error { return w.send(id, 5) }, 10},
		{"bytes without authentication", "", func(w *wire, id uint32) error { return w.send(id, 32<<10) }, 3},
		{"rapid reset", "a", func(w *wire, id uint32) error {
			return errors.Join(w.send(id, 0), w.WriteRSTStream(id, http2.ErrCodeCancel))
		}, 202},
		{"refused", "a", func(w *wire, id uint32) error {
			w.conn.Refuse()
			err := w.send(id, 0)
			if err == nil {
				w.answer(id)
			}
			return err
		}, 2002},
		{"at once", "a", func(w *wire, id uint32) error {
			return w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: true})
		}, 1001},
		{"settings", "a", func(w *wire, _ uint32) error {
			return w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		}, 201},
		{"acknowledgements of settings", "a", func(w *wire, _ uint32) error { return w.WriteSettingsAck() }, 5000},
		{"pings without authentication", "", func(w *wire, _ uint32) error { return w.WritePing(false, [8]byte{}) }, 2002},
		{"requests", "a", func(w *wire, id uint32) error {
			err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: true})
			if err == nil {
				w.answer(id)
			}
			return err
		}, 5000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := wired(setup(t, conns.Bounds{Authenticated: 9}), conns.NewBudget(64<<20), tt.principal)
				n := 0
				for ; n < 5000; n++ {
					if tt.stream(w, uint32(2*n+1)) != nil {
						break
					}
				}
				synctest.Wait()
				if n > tt.most || n < tt.most-5 {
					t.Errorf("closed after %d streams", n)
				}
			})
		})
	}
}

// TestUnread checks that no answers are added to those that a client does not read once they hold too much, that others get
// theirs, and that the client is disconnected if it then sends more requests.
func TestUnread(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1 << 20, 8 << 10, 6 << 10} { // the least are included in a stream, but for one message each
		synctest.Test(t, func(t *testing.T) {
			f, budget := setup(t, conns.Bounds{Authenticated: 9}), conns.NewBudget(4<<20)
			w := wired(f, budget, "a")
			err := w.send(1, 5) // like a watch
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for w.conn.AddAnswer(t.Context(), size) && n < 1000 {
				n++
			}
			if n < 3<<20/size-2 || n > (3<<20+24<<10)/size { // beside what of a connection and a stream is not counted
				t.Errorf("%d answers of %d bytes are held, of which three quarters of 4 MiB have room", n, size)
			}
			other := wired(f, budget, "b")
			if err := other.send(1, 5); err != nil || !other.conn.AddAnswer(t.Context(), 512<<10) {
				t.Errorf("another gets no answer: %v", err)
			}
			for id := uint32(3); id < 9 && err == nil; id += 2 {
				err = w.send(id, 5)
			}
			if err == nil {
				t.Error("still connected")
			}
		})
	}
}

// TestUnreadBesideRead checks that what a client reads frees nothing of what large answers hold that it does not read.
func TestUnreadBesideRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wired(setup(t, conns.Bounds{Authenticated: 9}), conns.NewBudget(4<<20), "a")
		go func() { _, _ = io.Copy(io.Discard, w.client) }()
		read := uint32(1001)
		unread := 0
		for ; unread < 10 && w.send(uint32(2*unread+1), 5) == nil && w.conn.AddAnswer(t.Context(), 1<<20); unread++ {
			for range 128 {
				if w.send(read, 5) != nil {
					break
				}
				w.conn.AddAnswer(t.Context(), 8<<10)
				var b bytes.Buffer
				_ = http2.NewFramer(&b, nil).WriteData(read, false, make([]byte, 8<<10+5))
				_, _ = w.http2.Write(b.Bytes())
				w.answer(read)
				read += 2
			}
		}
		if unread < 2 || unread > 3 {
			t.Errorf("%d answers of 1 MiB are held", unread)
		}
	})
}

// TestAnswersAreWritten checks that answers are free once they were written, large ones beside small ones.
func TestAnswersAreWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wired(setup(t, conns.Bounds{Authenticated: 9}), conns.NewBudget(4<<20), "a")
		go func() { _, _ = io.Copy(io.Discard, w.client) }()
		if err := w.send(1, 5); err != nil { // it stays open, like a watch
			t.Fatal(err)
		}
		for n := range uint32(100) {
			id := 2*n + 3
			if err := w.send(id, 5); err != nil {
				t.Fatalf("disconnected after %d answers of 1 MiB that were read", n)
			}
			for _, a := range []struct {
				stream uint32
				size   int
			}{{id, 1 << 20}, {1, 300}} {
				if !w.conn.AddAnswer(t.Context(), a.size) {
					t.Fatalf("the answer to request %d is refused", n)
				}
				var b bytes.Buffer
				_ = http2.NewFramer(&b, nil).WriteData(a.stream, false, make([]byte, a.size+5))
				_, _ = w.http2.Write(b.Bytes())
			}
			w.answer(id)
		}
	})
}
