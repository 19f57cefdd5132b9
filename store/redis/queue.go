package redis

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/batch"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis/internal/layout"
	"github.com/weirlimits/weir/store/redis/internal/script"
	"github.com/weirlimits/weir/store/redis/internal/settings"
)

const (
	// few is the number of takes under way up to which a take is sent at once, wherever the server is.
	few = 16
	// maxRuns is the number of runs under way beyond that: while the server executes one, the next is on its way.
	maxRuns = 2
	// maxDebits is the largest number of debits in one run, so that a run takes the server about half a millisecond.
	maxDebits = 64
)

// queue holds takes that one run of the script can carry: all takes of a store or, in a cluster, those of one
// namespace. A take is never delayed to fill a run: it waits only while enough runs are under way.
type queue = batch.Queue[*waiter, struct{}]

// waiter is a take in a queue. It holds nothing that belongs to its caller, which may leave at any time.
type waiter struct {
	batch.Waiter
	places []place
	debits []byte // the script's arguments for each debit, concatenated
	others string // see moment.others
	raw    string // the answer
	err    error
	slots  *store.Take // a copy of the take if it may take slots
}

// place is a bucket as the script takes it: its key, and the limits of a debit.
type place struct {
	key    string
	base   int
	queue  *queue
	limits int
	levels int // their size in the answer
	text   string
}

// queues are the queues of a store: [lanes] by namespace in a cluster, otherwise only those under "".
type queues struct {
	server      *server
	byNamespace sync.Map
	waiters     sync.Pool
	late        func(take *store.Take, answer string) // what becomes of slots that nobody waits for
}

// waiter returns a waiter for a take.
func (q *queues) waiter() *waiter {
	r, ok := q.waiters.Get().(*waiter)
	if !ok {
		r = new(waiter)
	}
	return r
}

// release returns a waiter to the pool. Nobody else may hold a reference to it.
func (q *queues) release(r *waiter) {
	clear(r.places)
	r.places, r.debits, r.others, r.raw, r.err, r.slots = r.places[:0], r.debits[:0], "", "", nil, nil
	q.waiters.Put(r)
}

// add adds a debit to the take.
func (r *waiter) add(p place, d *store.Debit) {
	if d.Phase != nil { // before the limits, after a length that no limit has
		from, until := d.Phase.Bounds()
		p.text = string(layout.Pair(layout.Pair([]byte{0, 0}, from), until)) + p.text
	}
	r.places = append(r.places, p)
	r.debits = binary.BigEndian.AppendUint64(r.debits, d.Epoch)
	r.debits = binary.BigEndian.AppendUint16(r.debits, uint16(p.base))
	r.debits = layout.AppendCharges(r.debits, d.Charges)
}

// lanes are the queues of the takes and of the settles that can share a run.
type lanes struct {
	takes   *queue
	settles *batch.Queue[*settling, struct{}]
}

// lanes returns the queues of a namespace.
func (q *queues) lanes(namespace string) *lanes {
	if !q.server.cluster {
		namespace = ""
	}
	if known, ok := q.byNamespace.Load(namespace); ok {
		return known.(*lanes)
	}
	takes, settles := &writer{server: q.server, late: q.late}, &settler{server: q.server}
	more := func(runs, jobs int) bool { return runs < maxRuns || jobs < few }
	takes.queue = batch.NewQueue(&q.server.group, takes, more)
	settles.queue = batch.NewQueue(&q.server.group, settles, func(runs, _ int) bool { return runs < maxRuns })
	known, _ := q.byNamespace.LoadOrStore(namespace, &lanes{takes.queue, settles.queue})
	return known.(*lanes)
}

// decide returns the script's answer to a take, within the call timeout. The waiter must not be used afterwards.
func (q *queues) decide(ctx context.Context, on *queue, r *waiter) (string, error) {
	if err := await(ctx, q.server.cfg.CallTimeout, on, r); err != nil {
		return "", err
	}
	raw, err := r.raw, r.err
	q.release(r)
	return raw, err
}

// await queues a job, and returns once it is answered, or an error after the timeout.
func await[J batch.Job](ctx context.Context, timeout time.Duration, on *batch.Queue[J, struct{}], j J) error {
	if until, ok := ctx.Deadline(); !ok || time.Until(until) > timeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	on.Lock()
	queued := on.Add(j)
	on.Unlock()
	if !queued {
		return store.ErrClosed
	}
	return on.Wait(ctx, j)
}

// together returns how many of the first jobs fit into one run, at least one.
func together[J any](waiting []J, debits func(J) int) (n int) {
	for sum := 0; n < len(waiting); n++ {
		if sum += debits(waiting[n]); n > 0 && sum > maxDebits {
			break
		}
	}
	return n
}

// writer runs the script for the takes of a queue.
type writer struct {
	server *server
	queue  *queue
	late   func(*store.Take, string)
}

// Prepare implements [batch.Writer].
func (w *writer) Prepare(waiting []*waiter) (_ struct{}, aboard, later []*waiter, ok bool) {
	n := together(waiting, func(r *waiter) int { return len(r.places) })
	return struct{}{}, waiting[:n:n], waiting[n:], true
}

// patience is how many call timeouts a run that may take slots is waited for, so that they can be given back.
const patience = 5

// Write implements [batch.Writer]: it runs the script for some takes and answers each of them. After the call timeout,
// the callers of takes have left, and other runs may begin.
func (w *writer) Write(_ struct{}, aboard []*waiter) (again []*waiter, pause time.Duration) {
	if !slices.ContainsFunc(aboard, func(r *waiter) bool { return r.slots != nil }) {
		w.write(aboard, w.server.cfg.CallTimeout)
		return nil, 0
	}
	done := make(chan struct{})
	if !w.server.group.Go(func() {
		defer close(done)
		w.write(aboard, patience*w.server.cfg.CallTimeout)
	}) {
		w.write(aboard, w.server.cfg.CallTimeout)
		return nil, 0
	}
	late := time.NewTimer(w.server.cfg.CallTimeout)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		w.queue.Lock()
		defer w.queue.Unlock()
		w.queue.Ended(context.DeadlineExceeded)
	}
	return nil, 0
}

// write runs the script for some takes, and answers them.
func (w *writer) write(aboard []*waiter, within time.Duration) {
	keys, args := w.request(aboard)
	raw, err := w.server.run(within, script.Take, keys, args).ToString()
	if len(aboard) > 1 && alone(err) {
		for i := range aboard {
			w.write(aboard[i:i+1], within)
		}
		return
	}
	w.queue.Lock()
	defer w.queue.Unlock()
	w.queue.Ended(err)
	for _, r := range aboard {
		r.err = err
		if err == nil {
			n, bad := r.size(raw)
			if r.err = bad; bad == nil {
				r.raw, raw = raw[:n], raw[n:]
			} else {
				raw = "" // the answers after it cannot be read either
			}
		}
		if take, answer := r.slots, r.raw; take != nil && r.Left() && strings.HasPrefix(answer, "A") {
			w.server.group.Go(func() { w.late(take, answer) })
		}
		w.queue.Answer(r)
	}
}

// alone reports whether a run was refused before it changed anything, while some of its takes might succeed on their
// own: the account may lack access to the keys of some, or a slot is being moved and some keys have moved already.
func alone(err error) bool {
	reply := settings.Answer(err)
	return strings.HasPrefix(reply, "NOPERM") && !strings.Contains(reply, "in script") ||
		strings.HasPrefix(reply, "TRYAGAIN")
}

func total(aboard []*waiter) (debits int) {
	for _, r := range aboard {
		debits += len(r.places)
	}
	return debits
}

// request returns the script's keys and arguments for takes.
func (w *writer) request(aboard []*waiter) (keys, args []string) {
	debits, size := total(aboard), 0
	for _, r := range aboard {
		size += len(r.debits)
	}
	keys = make([]string, 0, debits)
	first := string(layout.Pair(nil, int64(rand.Uint64()|1<<32))) // the ID of the first birth
	args = append(make([]string, 0, 8), w.server.now(), w.server.margin(), first, "", "")
	all := make([]byte, 0, size+3*debits)
	var last *place
	number := 0
	for _, r := range aboard {
		rest := r.debits
		args[4] = further(args[4], r.others)
		for i := range r.places {
			p := &r.places[i]
			if last == nil || p.text != last.text {
				if number = slices.Index(args[5:], p.text); number < 0 {
					number = len(args) - 5
					args = append(args, p.text)
				}
			}
			if last != nil {
				all = binary.BigEndian.AppendUint16(all, uint16(number+1))
			}
			last = p
			n := 10 + layout.ChargeSize*p.limits
			all, rest = append(all, rest[:n]...), rest[n:]
			last := byte(0)
			if i == len(r.places)-1 {
				last = 1
			}
			all = append(all, last)
			keys = append(keys, p.key)
		}
	}
	args[3] = string(binary.BigEndian.AppendUint16(all, 1))
	return keys, args
}

// size returns the length of a take's answer, which comes first in raw.
func (r *waiter) size(raw string) (int, error) {
	n := 1
	switch {
	case raw == "":
		return 0, layout.ErrFormat
	case raw[0] == 'E' || raw[0] == 'K':
		if n = 3; len(raw) >= n {
			n += layout.Read16(raw[1:])
		}
	case raw[0] == 'W':
		if n = 13; len(raw) >= n {
			n += int(layout.Read32(raw[9:]))
		}
	case raw[0] == 'P':
		n = 9
	case raw[0] == 'A' || raw[0] == 'R':
		n = 9
		for i := 0; i < len(r.places); i++ {
			n += r.places[i].levels
		}
	}
	if len(raw) < n {
		return 0, layout.ErrFormat
	}
	return n, nil
}
