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
	raw    string // the answer
	err    error
}

// queues are the queues of a store: by namespace in a cluster, otherwise a single one under "".
type queues struct {
	server      *server
	byNamespace sync.Map
	waiters     sync.Pool
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
	r.places, r.debits, r.raw, r.err = r.places[:0], r.debits[:0], "", nil
	q.waiters.Put(r)
}

// add adds a debit to the take.
func (r *waiter) add(p place, d *store.Debit) {
	r.places = append(r.places, p)
	r.debits = binary.BigEndian.AppendUint64(r.debits, d.Epoch)
	r.debits = binary.BigEndian.AppendUint16(r.debits, uint16(p.base))
	r.debits = appendCharges(r.debits, d.Charges)
}

// queue returns the queue of a namespace.
func (q *queues) queue(namespace string) *queue {
	if !q.server.cluster {
		namespace = ""
	}
	if known, ok := q.byNamespace.Load(namespace); ok {
		return known.(*queue)
	}
	w := &writer{server: q.server}
	more := func(runs, takes int) bool { return runs < maxRuns || takes < few }
	w.queue = batch.NewQueue(&q.server.group, w, more)
	known, _ := q.byNamespace.LoadOrStore(namespace, w.queue)
	return known.(*queue)
}

// decide returns the script's answer to a take, within the call timeout. The waiter must not be used afterwards.
func (q *queues) decide(ctx context.Context, on *queue, r *waiter) (string, error) {
	if until, ok := ctx.Deadline(); !ok || time.Until(until) > q.server.cfg.CallTimeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.server.cfg.CallTimeout)
		defer cancel()
	}
	on.Lock()
	queued := on.Add(r)
	on.Unlock()
	if !queued {
		return "", store.ErrClosed
	}
	if err := on.Wait(ctx, r); err != nil {
		return "", err
	}
	raw, err := r.raw, r.err
	q.release(r)
	return raw, err
}

// writer runs the script for the takes of a queue.
type writer struct {
	server *server
	queue  *queue
}

// Prepare implements [batch.Writer].
func (w *writer) Prepare(waiting []*waiter) (_ struct{}, aboard, later []*waiter, ok bool) {
	n, debits := 0, 0
	for _, r := range waiting {
		if debits += len(r.places); n > 0 && debits > maxDebits {
			break
		}
		n++
	}
	return struct{}{}, waiting[:n:n], waiting[n:], true
}

// Write implements [batch.Writer]: it runs the script for some takes and answers each of them.
func (w *writer) Write(_ struct{}, aboard []*waiter) (again []*waiter, pause time.Duration) {
	keys, args := w.request(aboard)
	raw, err := w.server.run(context.Background(), takeScript, keys, args).ToString()
	if len(aboard) > 1 && alone(err) {
		for i := range aboard {
			w.Write(struct{}{}, aboard[i:i+1])
		}
		return nil, 0
	}
	w.queue.Lock()
	defer w.queue.Unlock()
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
		w.queue.Answer(r)
	}
	return nil, 0
}

// alone reports whether a run was refused before it changed anything, while some of its takes might succeed on their
// own: the account may lack access to the keys of some, or a slot is being moved and some keys have moved already.
func alone(err error) bool {
	reply := answer(err)
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
	first := string(pair(nil, int64(rand.Uint64()|1<<32))) // the ID of the first birth
	args = append(make([]string, 0, 8), w.server.now(), w.server.margin(), first, "")
	all := make([]byte, 0, size+3*debits)
	var last *place
	number := 0
	for _, r := range aboard {
		rest := r.debits
		for i := range r.places {
			p := &r.places[i]
			if last == nil || p.text != last.text {
				if number = slices.Index(args[4:], p.text); number < 0 {
					number = len(args) - 4
					args = append(args, p.text)
				}
			}
			if last != nil {
				all = binary.BigEndian.AppendUint16(all, uint16(number+1))
			}
			last = p
			n := 10 + 9*p.limits
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
		return 0, errFormat
	case raw[0] == 'E':
		if n = 3; len(raw) >= n {
			n += read16(raw[1:])
		}
	case raw[0] == 'A' || raw[0] == 'R':
		n = 9
		for i := 0; i < len(r.places); i++ {
			n += levelSize * r.places[i].limits
		}
	}
	if len(raw) < n {
		return 0, errFormat
	}
	return n, nil
}
