package policy

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// auditor makes the records of audit events.
type auditor struct {
	retention time.Duration // how long events are kept
	ids       eventIDs
}

// write returns the write that records an event.
func (a *auditor) write(ctx context.Context, namespaceID string, e *record.Event) store.Write {
	now := record.Stamp()
	event := record.Audit{At: now, Principal: record.Principal(ctx), Action: e.Action}
	if e.Before != nil {
		event.Before = record.Encode(e.Before)
	}
	if e.After != nil {
		event.After = record.Encode(e.After)
	}
	key := store.Key{Namespace: namespaceID, Kind: store.KindAudit, ID: a.ids.next(now), Sub: e.Subject}
	w := record.Put(key, 0, event)
	w.Record.Expires = now.Add(a.retention)
	return w
}

// eventIDs makes ids that sort by time: 48 bits of milliseconds, then 80 random bits, which count up within one
// millisecond and while the clock is set back.
type eventIDs struct {
	mu     sync.Mutex
	hi, lo uint64 // of the last id
}

func (g *eventIDs) next(now time.Time) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ms := uint64(max(0, now.UnixMilli())); ms > g.hi>>16 {
		var random [10]byte
		_, _ = rand.Read(random[:]) // never fails
		g.hi = ms<<16 | uint64(binary.BigEndian.Uint16(random[:2]))
		g.lo = binary.BigEndian.Uint64(random[2:])
	} else if g.lo++; g.lo == 0 {
		g.hi++
	}
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var id [26]byte
	hi, lo := g.hi, g.lo
	for i := len(id) - 1; i >= 0; i-- {
		id[i] = digits[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(id[:])
}
