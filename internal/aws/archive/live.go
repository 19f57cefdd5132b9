package archive

import (
	"context"
	"time"

	"github.com/weirlimits/weir/store"
)

// writeAt is how many live events are gathered before they are written, and so the maximum number of lines in an
// object.
const writeAt = 10_000

// Live archives the audit events of a namespace that are still in the store, back to since, newest first, and returns
// how many there were. It changes nothing in the store.
func Live(ctx context.Context, from store.Catalog, to Putter, namespace string, since time.Time) (n int, err error) {
	q := store.Query{Namespace: namespace, Kind: store.KindAudit, Reverse: true, Max: 1000}
	var events []Event
	flush := func() error {
		_, err := Write(ctx, to, events)
		if err == nil {
			n += len(events)
		}
		events = nil
		return err
	}
	for older := false; !older; {
		page, err := from.List(ctx, q)
		if err != nil {
			return n, err
		}
		for _, r := range page.Records {
			e, err := FromRecord(r.Key, r.Value)
			if err != nil {
				return n, err
			}
			if older = e.At.Before(since); older {
				break
			}
			if len(events) >= writeAt {
				if err := flush(); err != nil {
					return n, err
				}
			}
			events = append(events, e)
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	return n, flush()
}
