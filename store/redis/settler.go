package redis

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/batch"
	"github.com/weirlimits/weir/store/redis/internal/layout"
	"github.com/weirlimits/weir/store/redis/internal/script"
)

// settling is a settle in a queue.
type settling struct {
	batch.Waiter
	keys   []string
	head   []byte   // the script's arguments for the settle
	limits []string // for each debit
	debits [][]byte
	others string // see moment.others
	got    []string
	err    error
}

// settler runs the script for the settles of a queue.
type settler struct {
	server *server
	queue  *batch.Queue[*settling, struct{}]
}

// Prepare implements [batch.Writer].
func (w *settler) Prepare(waiting []*settling) (_ struct{}, aboard, later []*settling, ok bool) {
	n := together(waiting, func(r *settling) int { return max(1, len(r.debits)) })
	return struct{}{}, waiting[:n:n], waiting[n:], true
}

// Write implements [batch.Writer]: it runs the script for some settles and answers each of them.
func (w *settler) Write(_ struct{}, aboard []*settling) (again []*settling, pause time.Duration) {
	var keys []string
	var all []byte
	args := append(make([]string, 0, 8), w.server.now(), w.server.margin(), "", "")
	for _, r := range aboard {
		keys, all = append(keys, r.keys...), append(all, r.head...)
		args[2] = further(args[2], r.others)
		for i, text := range r.limits {
			number := slices.Index(args[4:], text) + 1
			if number == 0 {
				args = append(args, text)
				number = len(args) - 4
			}
			all = append(binary.BigEndian.AppendUint16(all, uint16(number)), r.debits[i]...)
		}
	}
	args[3] = string(all)
	got, err := w.server.run(w.server.cfg.CallTimeout, script.Settle, keys, args).AsStrSlice()
	if len(aboard) > 1 && alone(err) {
		for i := range aboard {
			w.Write(struct{}{}, aboard[i:i+1])
		}
		return nil, 0
	}
	w.queue.Lock()
	defer w.queue.Unlock()
	w.queue.Ended(err)
	for _, r := range aboard {
		n := 1
		if len(got) > 0 && strings.HasPrefix(got[0], "A") {
			n += 2 * len(r.debits)
		}
		if r.err = err; err == nil && len(got) < n {
			r.err, got = layout.ErrFormat, nil // the answers after it cannot be read either
		} else if err == nil {
			r.got, got = got[:n:n], got[n:]
		}
		w.queue.Answer(r)
	}
	return nil, 0
}
