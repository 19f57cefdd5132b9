package redis

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir/store"
)

const (
	// few is the number of debits in flight up to which a take is sent at once, wherever the server is.
	few = 16
	// maxRuns is the number of runs in flight beyond that: while the server executes one, the next is on its way.
	maxRuns = 2
	// maxAboard is the largest number of debits in one run, so that a run takes the server about half a millisecond.
	maxAboard = 64
)

// lane is a queue of takes that one run of the script can carry: all takes of a store or, in a cluster, those of one
// namespace. Takes gather only while runs are in flight. A take is never delayed to fill a run: if the lane is free, it
// is a run of its own.
type lane struct {
	s       *Store
	mu      sync.Mutex
	runs    int     // in flight
	debits  int     // in those runs
	waiting []*ride // in order of arrival; while any take waits, a run is in flight
}

// ride is a take on a lane. It holds nothing that belongs to its caller, which may leave at any time.
type ride struct {
	places []*place
	debits []byte // the script's arguments for each debit, concatenated
	brief  bool
	done   chan verdict
	late   *time.Timer
	left   bool // the caller has gone; guarded by the lane
}

// verdict is the result of a run for one take.
type verdict struct {
	raw string
	err error
}

// ride returns a ride from the pool, or a new one: see recycle.
func (s *Store) ride() *ride {
	if r, ok := s.rides.Get().(*ride); ok {
		return r
	}
	late := time.NewTimer(s.cfg.CallTimeout)
	late.Stop()
	return &ride{done: make(chan verdict, 1), late: late}
}

// recycle returns a ride to the pool. Nobody else may hold a reference to it.
func (s *Store) recycle(r *ride) {
	clear(r.places)
	r.places, r.debits = r.places[:0], r.debits[:0]
	s.rides.Put(r)
}

// add adds a debit to the ride.
func (r *ride) add(p *place, d *store.Debit) {
	r.places = append(r.places, p)
	r.debits = binary.BigEndian.AppendUint64(r.debits, d.Epoch)
	r.debits = binary.BigEndian.AppendUint16(r.debits, uint16(p.base))
	r.debits = appendCharges(r.debits, d.Charges)
}

// lane returns the lane of a namespace.
func (s *Store) lane(namespace string) *lane {
	if !s.cluster {
		namespace = ""
	}
	if l, ok := s.lanes.Load(namespace); ok {
		return l.(*lane)
	}
	l, _ := s.lanes.LoadOrStore(namespace, &lane{s: s})
	return l.(*lane)
}

// ask returns the script's answer to a take, within the call timeout. The ride must not be used afterwards.
func (l *lane) ask(ctx context.Context, r *ride) (string, error) {
	n := len(r.places)
	l.mu.Lock()
	if l.free() && len(l.waiting) == 0 {
		l.runs, l.debits = l.runs+1, l.debits+n
		l.mu.Unlock()
		l.carry(ctx, []*ride{r})
		if next := l.next(nil, n); next != nil {
			if err := l.s.fly(func() { l.work(next) }); err != nil {
				l.dismiss(next, err)
			}
		}
		a := <-r.done
		l.s.recycle(r)
		return a.raw, a.err
	}
	l.waiting = append(l.waiting, r)
	l.mu.Unlock()
	r.late.Reset(l.s.cfg.CallTimeout)
	var err error
	select {
	case a := <-r.done:
		r.late.Stop()
		l.s.recycle(r)
		return a.raw, a.err
	case <-ctx.Done():
		r.late.Stop()
		err = ctx.Err()
	case <-r.late.C:
		err = context.DeadlineExceeded
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.left = true
	return "", err
}

// free reports whether a run may begin. The lane must be locked.
func (l *lane) free() bool { return l.runs < maxRuns || l.debits < few }

// next records that a run of ended debits has finished, and removes from the lane the takes of the next run. It returns
// nil if none wait, or if enough other runs are in flight.
func (l *lane) next(aboard []*ride, ended int) []*ride {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs, l.debits = l.runs-1, l.debits-ended
	if !l.free() {
		return nil
	}
	n, debits := 0, 0
	for _, r := range l.waiting {
		if !r.left {
			if debits > 0 && debits+len(r.places) > maxAboard {
				break
			}
			debits += len(r.places)
			aboard = append(aboard, r)
		}
		n++
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	if debits == 0 {
		return nil
	}
	l.runs, l.debits = l.runs+1, l.debits+debits
	return aboard
}

// work carries a run of takes, then further runs until no takes wait.
func (l *lane) work(aboard []*ride) {
	for aboard != nil {
		debits := total(aboard) // before carry: answered rides belong to their callers
		ctx, cancel := context.WithTimeout(context.Background(), l.s.cfg.CallTimeout)
		l.carry(ctx, aboard)
		cancel()
		clear(aboard)
		aboard = l.next(aboard[:0], debits)
	}
}

func total(aboard []*ride) (debits int) {
	for _, r := range aboard {
		debits += len(r.places)
	}
	return debits
}

// dismiss answers the takes of a run that cannot start, and all that wait: the store is closed.
func (l *lane) dismiss(aboard []*ride, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs, l.debits = l.runs-1, l.debits-total(aboard)
	for _, r := range slices.Concat(aboard, l.waiting) {
		r.done <- verdict{err: err}
	}
	l.waiting = nil
}

// carry runs the script for some takes and answers each of them.
func (l *lane) carry(ctx context.Context, aboard []*ride) {
	keys, args := l.s.request(aboard)
	raw, err := l.s.run(ctx, takeScript, keys, args).ToString()
	if len(aboard) > 1 && alone(err) {
		for i := range aboard {
			l.carry(ctx, aboard[i:i+1])
		}
		return
	}
	for _, r := range aboard {
		a := verdict{err: err}
		if err == nil {
			n, bad := r.size(raw)
			if a.err = bad; bad == nil {
				a.raw, raw = raw[:n], raw[n:]
			} else {
				raw = "" // the answers after it cannot be read either
			}
		}
		r.done <- a
	}
}

// alone reports whether a run was refused before it changed anything, while some of its takes might succeed on their
// own: the account may lack access to the keys of some, or a slot is being moved and some keys have moved already.
func alone(err error) bool {
	said := answer(err)
	return strings.HasPrefix(said, "NOPERM") && !strings.Contains(said, "in script") || strings.HasPrefix(said, "TRYAGAIN")
}

// request returns the script's keys and arguments for takes.
func (s *Store) request(aboard []*ride) (keys, args []string) {
	debits, size := total(aboard), 0
	for _, r := range aboard {
		size += len(r.debits)
	}
	keys = make([]string, 0, debits)
	args = append(make([]string, 0, 8), s.now(), s.margin(), string(pair(nil, int64(rand.Uint64()|1<<32))), "")
	all := make([]byte, 0, size+3*debits)
	var last *place
	number := 0
	for _, r := range aboard {
		rest := r.debits
		for i, p := range r.places {
			if last == nil || p.text != last.text {
				if number = slices.Index(args[4:], p.text.Value()); number < 0 {
					number = len(args) - 4
					args = append(args, p.text.Value())
				}
			}
			if last != nil {
				all = binary.BigEndian.AppendUint16(all, uint16(number+1))
			}
			last = p
			n := 10 + 9*len(p.limits)
			all, rest = append(all, rest[:n]...), rest[n:]
			follows := byte(0)
			switch {
			case i < len(r.places)-1:
			case r.brief:
				follows = 1
			default:
				follows = 2
			}
			all = append(all, follows)
			keys = append(keys, p.key)
		}
	}
	args[3] = string(binary.BigEndian.AppendUint16(all, 1))
	return keys, args
}

// size returns the length of a take's answer, which comes first in raw.
func (r *ride) size(raw string) (int, error) {
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
		for i := 0; i < len(r.places) && !r.brief; i++ {
			n += levelSize * len(r.places[i].limits)
		}
	}
	if len(raw) < n {
		return 0, errFormat
	}
	return n, nil
}
