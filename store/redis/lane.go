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
	// few debits under way keep nobody waiting, wherever the server is.
	few = 16
	// maxRuns is how many runs are under way where there are more: while the server is at one, the next is on its way.
	maxRuns = 2
	// maxAboard is how many debits share a run, so that the server is at it for half a millisecond or so.
	maxAboard = 64
)

// lane is where takes wait that one run of the script can carry: in a cluster those of a namespace, else all of a store.
// While runs are under way the next takes gather. Nobody waits for company: a take that finds the lane free is a run.
type lane struct {
	s       *Store
	mu      sync.Mutex
	runs    int     // under way
	debits  int     // in these
	waiting []*ride // in the order in which they came; there is a run while somebody waits
}

// ride is a take on a lane. It holds nothing that is its caller's, who may leave at any time.
type ride struct {
	places []*place
	debits []byte // of each debit what the script is told, one after another
	brief  bool
	done   chan verdict
	late   *time.Timer
	left   bool // the caller has gone; guarded by the lane
}

// verdict is what a run says of a take.
type verdict struct {
	raw string
	err error
}

// ride returns one that is used again: see recycle.
func (s *Store) ride() *ride {
	if r, ok := s.rides.Get().(*ride); ok {
		return r
	}
	late := time.NewTimer(s.cfg.CallTimeout)
	late.Stop()
	return &ride{done: make(chan verdict, 1), late: late}
}

// recycle keeps a ride for later. Nobody else may know of it.
func (s *Store) recycle(r *ride) {
	clear(r.places)
	r.places, r.debits = r.places[:0], r.debits[:0]
	s.rides.Put(r)
}

// add adds a debit.
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

// ask returns what the script says of a take, within the time of a call. The ride is not to be used any more.
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

// next notes that a run has ended, of so many debits, and takes those off the lane who share the next. There is none where
// nobody waits, or enough others are under way.
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

// work carries those who share a run, and then those who wait, until there are none.
func (l *lane) work(aboard []*ride) {
	for aboard != nil {
		debits := total(aboard) // once they are answered they are their callers'
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

// dismiss answers those who were to share a run, and all who wait: the store is closed.
func (l *lane) dismiss(aboard []*ride, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs, l.debits = l.runs-1, l.debits-total(aboard)
	for _, r := range slices.Concat(aboard, l.waiting) {
		r.done <- verdict{err: err}
	}
	l.waiting = nil
}

// carry runs the script for takes, and answers each.
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
				raw = "" // and with it what the others were told
			}
		}
		r.done <- a
	}
}

// alone reports whether a run was refused before it did anything, and takes of it may not be when each comes alone: the
// keys of some are not for this account, or a slot is being moved, and some of its keys already are.
func alone(err error) bool {
	said := answer(err)
	return strings.HasPrefix(said, "NOPERM") && !strings.Contains(said, "in script") || strings.HasPrefix(said, "TRYAGAIN")
}

// request returns what the script is told of takes.
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

// size returns how much of a run's answer is a take's, which is the first in it.
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
