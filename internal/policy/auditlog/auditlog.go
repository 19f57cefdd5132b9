// Package auditlog makes the records of audit events, which are chained.
package auditlog

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Log makes the records of audit events. See [New].
type Log struct {
	retention time.Duration // how long events are kept
	ids       eventIDs

	mu    sync.Mutex
	turns map[string]chan struct{} // by namespace; holds an element while an event is written
}

// New returns a log whose events are kept for a time.
func New(retention time.Duration) *Log {
	return &Log{retention: retention, turns: make(map[string]chan struct{})}
}

// Turn waits until no other change of this process continues the chain of a namespace. Call end when it has been
// continued.
func (a *Log) Turn(ctx context.Context, namespaceID string) (end func(), err error) {
	a.mu.Lock()
	turn := a.turns[namespaceID]
	if turn == nil {
		turn = make(chan struct{}, 1)
		a.turns[namespaceID] = turn
	}
	a.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Writes returns the writes that record events as the next ones of the namespace's chain, given its last one.
func (a *Log) Writes(
	ctx context.Context, namespaceID string, last store.Record, events []record.Event,
) ([]store.Write, error) {
	var head record.AuditHead
	if last.Version != 0 {
		if err := record.Decode(last, &head); err != nil {
			return nil, err
		}
	}
	writes := make([]store.Write, 0, len(events)+1)
	for i := range events {
		now := record.Stamp()
		event := record.Audit{
			At: now, Principal: record.Principal(ctx), Action: events[i].Action, Source: record.Source(ctx),
			Link: record.Link{Number: head.Number + 1, Previous: head.Hash, PreviousExpires: head.Expires},
		}
		if events[i].Before != nil {
			event.Before = record.Encode(events[i].Before)
		}
		if events[i].After != nil {
			event.After = record.Encode(events[i].After)
		}
		w := record.Put(store.Key{
			Namespace: namespaceID, Kind: store.KindAudit, ID: a.ids.next(now), Sub: events[i].Subject,
		}, 0, event)
		w.Record.Expires = now.Add(a.retention)
		line, err := record.LineOf(w.Record)
		if err != nil {
			return nil, err
		}
		head.Number, head.Hash, head.Expires = event.Number, line.Hash(), w.Record.Expires.UTC()
		if head.Expires.After(head.Until) {
			head.Until = head.Expires
		}
		writes = append(writes, w)
	}
	return append(writes, record.Put(record.AuditHeadKey(namespaceID), last.Version, head)), nil
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
