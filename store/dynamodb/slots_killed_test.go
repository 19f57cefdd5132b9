package dynamodb_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	weiradmin "github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/storetest"
)

// holderEnv turns the test binary into a holder: a process that takes slots through the library and reports what it
// holds. It names the engine's endpoint; holderTable names the table.
const holderEnv, holderTable = "WEIR_TEST_DYNAMODB_HOLDER", "WEIR_TEST_DYNAMODB_TABLE"

const (
	killedSlots   = 8
	killedHeal    = 16 * time.Second // the shortest
	killedCallers = 5                // of each holder
)

// heldSlot is a line of a holder's report: a slot was taken, or was held until then, or the order was carried out.
type heldSlot struct {
	Lease int       // numbered from 1
	From  time.Time // once it was admitted; zero: unchanged
	Until time.Time // when its context had not ended, and it was not given back; zero: not known yet
	Lost  bool
	Done  bool   // the order
	Error string // why a lease was not admitted, other than by a limit
}

// slotHolder is a holder, in its own process.
type slotHolder struct {
	lim *weir.Limiter

	mu     sync.Mutex
	leases int
	out    *json.Encoder
}

// runSlotHolder holds slots until a line is read, gives them back then, and takes all there are at the next line. The
// line before these has how many of its callers hold one slot for as long as they can.
func runSlotHolder(endpoint, table string, in io.Reader, out io.Writer) error {
	cfg := exact
	cfg.Client, cfg.Table = dynamotest.Dial(endpoint, retrying), table
	s, err := dynamodb.New(cfg)
	if err != nil {
		return err
	}
	lim, err := weir.New(weir.Config{Store: s, StoreTimeout: patient, Cooldown: -1})
	if err != nil {
		return err
	}
	h := &slotHolder{lim: lim, out: json.NewEncoder(out)}
	orders := bufio.NewScanner(in)
	orders.Scan()
	long, err := strconv.Atoi(orders.Text())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	for i := range killedCallers {
		callers.Go(func() { h.call(ctx, i < long) })
	}
	orders.Scan()
	stop()
	callers.Wait()
	h.report(heldSlot{Done: true})
	if orders.Scan() {
		r := heldSlot{Done: true}
		if all, err := lim.Acquire(context.Background(), slotRequest(killedSlots)); err != nil {
			r.Error = err.Error()
		} else if err = all.Close(context.Background()); err != nil {
			return err
		}
		h.report(r)
		orders.Scan()
	}
	return lim.Close()
}

func slotRequest(n int64) weir.Request {
	return weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"parallel": n}}
}

// call takes a slot again and again, and holds it for a while; or, if long, until ctx ends, so that it is renewed.
func (h *slotHolder) call(ctx context.Context, long bool) {
	for ctx.Err() == nil {
		lease, err := h.lim.Acquire(context.WithoutCancel(ctx), slotRequest(1))
		if err == nil {
			h.hold(ctx, lease, long)
		} else if !errors.Is(err, weir.ErrExceeded) {
			h.report(heldSlot{Error: err.Error()})
		}
		time.Sleep(100*time.Millisecond + rand.N(100*time.Millisecond)) // real time: to leave slots to others
	}
}

// hold holds a slot, and gives it back.
func (h *slotHolder) hold(ctx context.Context, lease *weir.Lease, long bool) {
	held, taken := lease.Context(), time.Now()
	h.mu.Lock()
	h.leases++
	r := heldSlot{Lease: h.leases, From: taken}
	h.mu.Unlock()
	h.report(r)
	end := time.Now().Add(200*time.Millisecond + rand.N(time.Second))
	for r.Until = taken; ctx.Err() == nil; {
		now := time.Now() // before the context is looked at
		if r.Lost = held.Err() != nil; r.Lost {
			break
		}
		if r.Until = now; !long && now.After(end) {
			break
		}
		time.Sleep(20 * time.Millisecond) // real time: so does the clock of the engine
	}
	h.report(r)
	if err := lease.Close(context.Background()); err != nil {
		h.report(heldSlot{Error: err.Error()})
	}
}

func (h *slotHolder) report(r heldSlot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.out.Encode(r) // where nobody reads it, the orders end, too
}

// slotWatch is what holders have reported.
type slotWatch struct {
	mu    sync.Mutex
	held  []map[int]*heldSlot // by holder and lease
	wrong []string
	done  chan string // the error of an order
}

// start starts a holder, some of whose callers hold for long, and reads its reports until it ends.
func (w *slotWatch) start(t *testing.T, endpoint, table string, long int) (orders io.Writer, p *exec.Cmd) {
	t.Helper()
	p = exec.CommandContext(t.Context(), os.Args[0])
	p.Env, p.Stderr = append(os.Environ(), holderEnv+"="+endpoint, holderTable+"="+table), os.Stderr
	orders, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(orders, long); err != nil {
		t.Fatal(err)
	}
	held := make(map[int]*heldSlot)
	w.mu.Lock()
	w.held = append(w.held, held)
	w.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for in := json.NewDecoder(out); ; {
			r := new(heldSlot)
			if in.Decode(r) != nil {
				return
			}
			w.read(held, r)
		}
	}()
	t.Cleanup(func() { _, _ = p.Process.Kill(), p.Wait(); <-ended })
	return orders, p
}

func (w *slotWatch) read(held map[int]*heldSlot, r *heldSlot) {
	if r.Done {
		w.done <- r.Error
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Lease > 0 {
		held[r.Lease] = r
	}
	if r.Error != "" {
		w.wrong = append(w.wrong, r.Error)
	}
}

// holds returns how many slots a holder holds now.
func (w *slotWatch) holds(i int) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.held[i] {
		if r.Until.IsZero() {
			n++
		}
	}
	return n
}

// most returns the most slots that were ever held at once, and how long after the kill all were held again; 0: never.
// What the killed holder did not give back, it held until then.
func (w *slotWatch) most(killed time.Time) (most, leases, lost int, after time.Duration) {
	type change struct {
		at time.Time
		by int
	}
	var all []change
	w.mu.Lock()
	for i := range w.held {
		for _, r := range w.held[i] {
			if r.Until.IsZero() {
				r.Until = killed
			}
			if leases++; r.Lost {
				lost++
			}
			all = append(all, change{r.From, 1}, change{r.Until, -1})
		}
	}
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), a.by-b.by) })
	n := 0
	for _, c := range all {
		if n += c.by; n > most {
			most = n
		}
		if n >= killedSlots && after == 0 && c.at.After(killed) {
			after = c.at.Sub(killed)
		}
	}
	return most, leases, lost, after
}

// TestSlotsTortureKilled kills one of four processes that hold slots through the library. Never is more held than the
// limit allows, and 2 T + 2 S after the kill all slots can be taken.
func TestSlotsTortureKilled(t *testing.T) {
	t.Parallel()
	endpoint := dynamotest.Engine(t)
	for range max(1, int(storetest.TortureTime(t)/time.Minute)) {
		slotsKilled(t, endpoint)
	}
}

func slotsKilled(t *testing.T, endpoint string) {
	t.Helper()
	table, client := dynamotest.Table(t), dynamotest.Client(t, endpoint)
	if _, err := dynamodb.Create(t.Context(), client, table, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	s, err := dynamodb.New(dynamodb.Config{Client: client, Table: table, CallTimeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	lim, err := weir.New(weir.Config{Store: s, StoreTimeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	l := weir.Limit{Name: "parallel", Slots: killedSlots, Heal: killedHeal}
	if err := weiradmin.New(lim).Limits.Set(t.Context(), weiradmin.Scope{}, l); err != nil {
		t.Fatal(err)
	}
	w := &slotWatch{done: make(chan string)}
	_, first := w.start(t, endpoint, table, killedCallers)
	for began := time.Now(); w.holds(0) < killedCallers; {
		if time.Since(began) > patient {
			t.Fatalf("%d are held: %q", w.holds(0), w.wrong)
		}
		time.Sleep(time.Millisecond) // real time: another process takes slots
	}
	var orders []io.Writer
	for range 3 {
		in, _ := w.start(t, endpoint, table, 1)
		orders = append(orders, in)
	}
	time.Sleep(2 * time.Second) // real time: other processes take slots
	killed, had := time.Now(), w.holds(0)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(killed.Add(2*killedHeal + 2*2*time.Second))) // real time: slots heal by the engine's clock
	order := func(in io.Writer) string {
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		return <-w.done
	}
	for _, in := range orders {
		order(in)
	}
	if wrong := order(orders[0]); wrong != "" {
		t.Errorf("not all %d are free %v after the kill: %s", killedSlots, time.Since(killed), wrong)
	}
	most, leases, lost, after := w.most(killed)
	t.Logf("%d leases, at most %d held at once, %d lost; the killed process held %d; the others held all %d %v after",
		leases, most, lost, had, killedSlots, after)
	w.mu.Lock()
	defer w.mu.Unlock()
	if most != killedSlots || len(w.wrong) > 0 {
		t.Errorf("at most %d of %d were held at once; errors: %q", most, killedSlots, w.wrong)
	}
}
