package conns_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimits/weir/internal/serve/conns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipes is a listener of connections from made-up addresses.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) { return <-p, nil }
func (p pipes) Close() error              { return nil }
func (p pipes) Addr() net.Addr            { return &net.TCPAddr{} }

// from is a connection from an address.
type from struct {
	net.Conn

	addr string
}

func (f *from) RemoteAddr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", f.addr)
	if err != nil {
		panic(err)
	}
	return a
}

// fixture is a listener with its clients.
type fixture struct {
	*conns.Listener

	t     *testing.T
	pipes pipes
}

func setup(t *testing.T, b conns.Bounds) *fixture {
	t.Helper()
	p := make(pipes, 1)
	return &fixture{conns.Listen(p, b), t, p}
}

// dial returns both ends of a connection.
func (f *fixture) dial(addr string) (client net.Conn, served *conns.Conn) {
	f.t.Helper()
	client, server := net.Pipe()
	f.pipes <- &from{server, addr}
	c, err := f.Accept()
	if err != nil {
		f.t.Fatal(err)
	}
	served = conns.Of(c.RemoteAddr())
	f.t.Cleanup(func() { client.Close(); served.Close() })
	return client, served
}

// stay reports which of the connections are open.
func stay(clients []net.Conn) (is []int) {
	for i, c := range clients {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			is = append(is, i)
		}
	}
	return is
}

// TestEvicts checks which connection makes room for one more: the one of the address or principal with most that is
// idle longest.
func TestEvicts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		addresses []string
		principal []string // that authenticates; "" for the address, "-" for none
		busy      []int
		want      []int // those that stay
	}{
		{"unauthenticated", []string{"1.1.1.1:1", "1.1.1.1:2", "2.2.2.2:1", "3.3.3.3:1"}, []string{"-", "-", "-", "-"}, nil, []int{1, 2, 3}},
		{"one of most", []string{"2.2.2.2:1", "1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3"}, []string{"-", "-", "-", "-"}, nil, []int{0, 2, 3}},
		{"a network of IPv6", []string{"[2::9]:1", "[1::1]:1", "[1::2]:2", "[1::3]:3"}, []string{"-", "-", "-", "-"}, nil, []int{0, 2, 3}},
		{"busy unauthenticated", []string{"1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3", "1.1.1.1:4"}, []string{"-", "-", "-", "-"}, []int{0, 1, 2}, []int{1, 2, 3}},
		{"authenticated", []string{"1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3", "1.1.1.1:4"}, []string{"b", "a", "a", "c"}, nil, []int{0, 2, 3}},
		{"authenticated addresses", []string{"2.2.2.2:1", "1.1.1.1:2", "1.1.1.1:3", "1.1.1.1:4"}, []string{"", "", "", ""}, nil, []int{0, 2, 3}},
		{"busy authenticated", []string{"1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3", "1.1.1.1:4"}, []string{"a", "a", "a", "c"}, []int{0, 1}, []int{0, 1, 3}},
		{"all are busy", []string{"1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3", "1.1.1.1:4"}, []string{"a", "b", "c", "d"}, []int{0, 1, 2}, []int{0, 1, 2, 3}},
		{"all are busy, of two", []string{"1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3", "1.1.1.1:4"}, []string{"a", "b", "b", "c"}, []int{0, 1, 2}, []int{0, 2, 3}},
		{"unauthenticated beside authenticated", []string{"1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3", "1.1.1.1:4"}, []string{"a", "-", "a", "-"}, nil, []int{0, 1, 2, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			gone := 0
			f := setup(t, conns.Bounds{Authenticated: 3, Unauthenticated: 3, Evicted: func() { gone++ }})
			var clients []net.Conn
			authenticated := 0
			for i, addr := range tt.addresses {
				client, c := f.dial(addr)
				clients = append(clients, client)
				c.Begin()
				if who := tt.principal[i]; who != "-" {
					if c.Authenticate(who) {
						authenticated++
					}
				}
				if !slices.Contains(tt.busy, i) {
					c.End()
				}
			}
			if got := stay(clients); !slices.Equal(got, tt.want) || gone != len(clients)-len(got) {
				t.Errorf("%d are left, want %d; %d were evicted", got, tt.want, gone)
			}
			if full := tt.name == "all are busy"; full != f.Full() || full && authenticated != 3 {
				t.Errorf("full: %v; %d are authenticated", f.Full(), authenticated)
			}
		})
	}
}

// TestNobodyTakesAll opens busy connections of one principal after the other. The first gets three quarters, and there is
// room for another however many there are: once all are busy, for its fair share, in place of those of the principal with
// most. Whoever has as many as it may, and nothing else, closes its own.
func TestNobodyTakesAll(t *testing.T) {
	t.Parallel()
	const working, receiving, idle = "working", "receiving", "idle"
	type open struct{ who, then string }
	for _, tt := range []struct {
		name          string
		opens         []open
		authenticated []int // of 100 that each opens
		keeps         []int // once all are open
	}{
		{
			"working",
			[]open{{"a", working}, {"b", working}, {"c", working}, {"d", working}},
			[]int{75, 19, 5, 25},
			[]int{51, 19, 5, 25},
		},
		{
			"receiving",
			[]open{{"a", receiving}, {"b", working}, {"c", working}},
			[]int{100, 75, 50},
			[]int{0, 50, 50},
		},
		{"idle", []open{{"a", idle}, {"b", receiving}}, []int{100, 100}, []int{49, 51}},
		{
			"together",
			[]open{{"a", working}, {"b", working}, {"c", working}, {"d", working}, {"e", working}, {"f", working}, {"a", working}},
			[]int{75, 19, 5, 25, 20, 16, 0},
			[]int{20, 19, 5, 20, 20, 16, 0},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, conns.Bounds{Authenticated: 100})
			var accepted, keeps []int
			var clients [][]net.Conn
			for _, o := range tt.opens {
				n, all := 0, []net.Conn(nil)
				for range 100 {
					client, c := f.dial("1.1.1.1:1")
					c.Begin()
					if !c.Authenticate(o.who) {
						continue
					}
					n++
					all = append(all, client)
					switch o.then {
					case receiving:
						c.Receive()
					case idle:
						c.End()
					}
				}
				accepted, clients = append(accepted, n), append(clients, all)
				if f.Full() && o != tt.opens[len(tt.opens)-1] {
					t.Errorf("full by %s", o.who)
				}
			}
			for i, all := range clients {
				left := stay(all)
				keeps = append(keeps, len(left))
				if n := len(all) - len(left); n > 0 && len(left) > 0 && left[0] != n {
					t.Errorf("%s: not the oldest was evicted, but %d are left", tt.opens[i].who, left)
				}
			}
			if !slices.Equal(accepted, tt.authenticated) || !slices.Equal(keeps, tt.keeps) {
				t.Errorf("accepted %d, want %d; %d are open, want %d", accepted, tt.authenticated, keeps, tt.keeps)
			}
		})
	}
}

// TestReceived checks that a connection is evicted before its body has arrived, but not afterwards, and idle ones first.
func TestReceived(t *testing.T) {
	t.Parallel()
	f := setup(t, conns.Bounds{Authenticated: 3})
	var clients []net.Conn
	var served []*conns.Conn
	next := func() bool {
		client, c := f.dial("1.1.1.1:1")
		clients, served = append(clients, client), append(served, c)
		c.Begin()
		ok := c.Authenticate("a")
		c.Receive()
		return ok
	}
	for range 3 {
		next()
	}
	served[0].Received()
	served[2].End()
	if next(); !slices.Equal(stay(clients), []int{0, 1, 3}) {
		t.Errorf("%d are open: the idle one is evicted", stay(clients))
	}
	if next(); !slices.Equal(stay(clients), []int{0, 3, 4}) {
		t.Errorf("%d are open: the oldest that receives is evicted", stay(clients))
	}
	served[3].Received()
	served[4].Received()
	if next() {
		t.Error("one was evicted whose body was received")
	}
}

// TestClosedMakesRoom checks that connections that were closed are not counted, in any order.
func TestClosedMakesRoom(t *testing.T) {
	t.Parallel()
	f := setup(t, conns.Bounds{Authenticated: 3, Evicted: func() { t.Error("one was evicted") }})
	for range 10 {
		var all []*conns.Conn
		for i := range 3 {
			_, c := f.dial(fmt.Sprint("1.1.1.1:", i))
			if c.Begin(); !c.Authenticate("a") {
				t.Fatal("there is no room")
			}
			all = append(all, c)
		}
		for _, i := range []int{1, 0, 2} {
			_ = all[i].Close()
			_ = all[i].Close()
			if all[i].End(); f.Full() {
				t.Error("full")
			}
		}
	}
}

// TestHeaderLines checks that a line of headers counts 128 bytes beside its own, also if it was encrypted.
func TestHeaderLines(t *testing.T) {
	t.Parallel()
	for _, encrypted := range []bool{false, true} {
		f := setup(t, conns.Bounds{Authenticated: 9, Headers: conns.NewBudget(1 << 20)})
		const lines = 1000
		n, text := 0, []byte(strings.Repeat("\n", lines))
		for ; n < 20; n++ {
			client, c := f.dial("1.1.1.1:1")
			if encrypted {
				if c.AddHeaders(text) != nil {
					break
				}
				continue
			}
			go func() { _, _ = client.Write(text) }()
			if _, err := c.Read(make([]byte, lines)); err != nil {
				break
			}
		}
		if n != 6 { // three quarters of 1 MiB, by 128 KiB less 16 KiB that are not counted
			t.Errorf("encrypted %t: %d requests of %d lines are received", encrypted, n, lines)
		}
	}
}

// TestHeaders checks that what the headers of unfinished requests hold is bounded, for each address less than for all, and
// free once the request has ended.
func TestHeaders(t *testing.T) {
	t.Parallel()
	f := setup(t, conns.Bounds{Authenticated: 9, Headers: conns.NewBudget(1 << 20)})
	read := func(addr string, size int) (*conns.Conn, error) {
		client, c := f.dial(addr)
		go func() { _, _ = client.Write(make([]byte, size)) }()
		_, err := io.ReadFull(c, make([]byte, size))
		return c, err
	}
	var first *conns.Conn
	for i := range 4 {
		c, err := read("1.1.1.1:1", 256<<10)
		if (err == nil) != (i < 3) { // three quarters
			t.Errorf("%d: got %v", i, err)
		}
		if i == 0 {
			first = c
		}
	}
	first.Idle()
	if _, err := read("1.1.1.1:1", 128<<10); err != nil {
		t.Errorf("once a request has ended: %v", err)
	}
	if _, err := read("2.2.2.2:1", 64<<10); err != nil {
		t.Errorf("of another address: %v", err)
	}
}

// TestTurns checks that at most one connection for two processors works on what was read from it, that another principal's
// comes next but one, however many wait, and that one that does not read again keeps nobody out.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, conns.Bounds{Authenticated: 10_000})
		read := func(principal string) (*conns.Conn, chan time.Time) {
			client, c := f.dial("1.1.1.1:1")
			c.Authenticate(principal)
			at := make(chan time.Time, 1)
			go func() { _, _ = client.Write([]byte{0}) }()
			go func() {
				if _, err := c.Read(make([]byte, 1)); err == nil {
					at <- time.Now()
				}
			}()
			return c, at
		}
		var all []chan time.Time
		for range 20 * runtime.GOMAXPROCS(0) {
			_, at := read("a")
			all = append(all, at)
		}
		synctest.Wait()
		began, working := time.Now(), 0
		for _, at := range all {
			working += len(at)
		}
		if most := max(1, runtime.GOMAXPROCS(0)/2); working == 0 || working > most {
			t.Errorf("%d work at once, want at most %d", working, most)
		}
		c, at := read("b")
		if took := (<-at).Sub(began); took > 4*time.Millisecond {
			t.Errorf("another's turn came after %s", took)
		}
		_, next := read("c")
		time.Sleep(time.Millisecond)
		c.Yield()
		synctest.Wait()
		if len(next) == 0 {
			t.Error("one did not go first to whom the turn was left")
		}
		for _, at := range all {
			<-at
		}
	})
}

// TestRefusedForASecond checks that a connection for which there is no room is refused for a second, without another look
// at all that are open, and not for longer.
func TestRefusedForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, conns.Bounds{Authenticated: 1})
		_, first := f.dial("1.1.1.1:1")
		if first.Begin(); !first.Authenticate("a") {
			t.Fatal("there is no room")
		}
		_, c := f.dial("1.1.1.1:2")
		if c.Begin(); c.Authenticate("a") {
			t.Fatal("there is room")
		}
		first.End()
		if c.Authenticate("a") {
			t.Error("it was looked for room at once")
		}
		time.Sleep(time.Second)
		if !c.Authenticate("a") {
			t.Error("refused after a second")
		}
	})
}
