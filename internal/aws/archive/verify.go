package archive

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Chain is what was found of the chain of a namespace's audit events. An event has the hash of the one before, so that
// an event that is changed, removed or inserted is a fault, unless all later ones are written again, too.
type Chain struct {
	Namespace string   `json:"namespace"`       // the opaque ID
	Events    int      `json:"events"`          // of the chain
	First     uint64   `json:"first,omitempty"` // number of the oldest: the ones before have expired
	Last      uint64   `json:"last,omitempty"`  // number of the newest
	Hash      string   `json:"hash,omitempty"`  // of the newest
	Unchained int      `json:"unchained"`       // events that earlier versions of weir wrote before the chain
	Faults    []string `json:"faults"`

	first link // the oldest of the chain
}

func (c *Chain) fault(format string, args ...any) {
	c.Faults = append(c.Faults, fmt.Sprintf(format, args...))
}

// VerifyStore verifies the chain of a namespace in a store, from the oldest event that has not expired to the newest.
func VerifyStore(ctx context.Context, from store.Catalog, namespace string) (Chain, error) {
	for try := 1; ; try++ {
		c, err := verifyStore(ctx, from, namespace)
		if err != nil || len(c.Faults) == 0 || try == 4 {
			return c, err
		}
		pause := time.NewTimer(time.Second) // a list of DynamoDB may lack what was written last
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return c, ctx.Err()
		}
	}
}

func verifyStore(ctx context.Context, from store.Catalog, namespace string) (Chain, error) {
	var links []link
	var damaged []string
	for q := (store.Query{Namespace: namespace, Kind: store.KindAudit, Max: 1000}); ; {
		page, err := from.List(ctx, q)
		if err != nil {
			return Chain{}, err
		}
		for _, r := range page.Records {
			line, err := record.LineOf(r)
			if err != nil {
				damaged = append(damaged, fmt.Sprintf("event %s is damaged: %v", r.Key.ID, err))
				continue
			}
			links = append(links, linkOf(&line))
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	var head record.AuditHead // read last: no event that is listed is newer
	got, err := from.Get(ctx, record.AuditHeadKey(namespace))
	if err == nil && got.Records[0].Version != 0 {
		err = record.Decode(got.Records[0], &head)
	}
	if err != nil {
		return Chain{}, err
	}
	// Clocks of stores and processes differ: an event that expires now may be there or not.
	due := func(expires time.Time) bool { return time.Until(expires) > time.Minute }
	c := verify(namespace, links, due)
	c.Faults = append(c.Faults, damaged...)
	if c.First > 1 && due(c.first.PreviousExpires) {
		c.fault("%s", missing(1, c.First-1))
	}
	switch {
	case c.Last > head.Number:
		c.fault("event %d comes after the end of the chain, which is event %d", c.Last, head.Number)
	case c.Last < head.Number && due(head.Expires):
		c.fault("%s", missing(c.Last+1, head.Number))
	case c.Last == head.Number && c.Hash != head.Hash:
		c.fault("event %d is not the one that was written last", c.Last)
	}
	return c, nil
}

// archived is within what time after it has expired an event is in an archive: DynamoDB deletes it some days later.
const archived = 4 * 24 * time.Hour

// VerifyArchive verifies the chain of a namespace in an archive, from the oldest event that is there. An event is only
// missed 4 days after it has expired: until then, it may be in the store alone.
func VerifyArchive(ctx context.Context, b Bucket, namespace string) (Chain, error) {
	names, err := b.List(ctx, root+"namespace="+escaper.Replace(namespace)+"/")
	if err != nil {
		return Chain{}, err
	}
	var links []link
	var damaged []string
	for _, name := range names {
		if ns, _, _, ok := parse(name); !ok || ns != namespace {
			continue
		}
		content, err := b.Get(ctx, name)
		if err != nil {
			return Chain{}, err
		}
		events, err := unpack(content)
		if err != nil {
			damaged = append(damaged, fmt.Sprintf("object %s is damaged: %v", name, err))
		}
		for _, e := range events {
			links = append(links, linkOf(&record.AuditLine{
				Namespace: e.Namespace, ID: e.ID, At: e.At, Principal: e.Principal, Action: e.Action,
				Subject: e.Subject, Before: e.Before, After: e.After, Source: e.Source,
				Link: record.Link{
					Number: e.Number, Previous: e.Previous, PreviousExpires: e.PreviousExpires,
				},
			}))
		}
	}
	c := verify(namespace, links, func(expires time.Time) bool { return time.Since(expires) > archived })
	c.Faults = append(c.Faults, damaged...)
	return c, nil
}

// link is what the verification of a chain needs of an event.
type link struct {
	record.Link
	id, hash string
}

func linkOf(line *record.AuditLine) link { return link{line.Link, line.ID, line.Hash()} }

// verify checks that each event continues the one before. The same event may come more than once. Events are missing
// if the last of them is due to be there, given when it expires.
func verify(namespace string, links []link, due func(expires time.Time) bool) Chain {
	c := Chain{Namespace: namespace, Faults: []string{}}
	slices.SortFunc(links, func(a, b link) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.id, b.id), cmp.Compare(a.hash, b.hash))
	})
	chained := slices.IndexFunc(links, func(l link) bool { return l.Number > 0 })
	for _, l := range slices.Compact(links) {
		switch {
		case l.Number == 0:
			if c.Unchained++; chained >= 0 && l.id > links[chained].id {
				c.fault("event %s has no number, although it is later than event %d (%s): inserted, or written by an "+
					"earlier version of weir", l.id, links[chained].Number, links[chained].id)
			}
			continue
		case c.Events > 0 && l.Number == c.Last:
			c.fault("event %d (%s) exists twice, differently", l.Number, l.id)
			continue
		case c.Events > 0 && l.Number > c.Last+1 && due(l.PreviousExpires):
			c.fault("%s", missing(c.Last+1, l.Number-1))
		case c.Events > 0 && l.Number == c.Last+1 && l.Previous != c.Hash:
			c.fault("event %d (%s) does not continue event %d: one of them was changed", l.Number, l.id, c.Last)
		case c.Events == 0:
			c.First, c.first = l.Number, l
		}
		c.Events++
		c.Last, c.Hash = l.Number, l.hash
	}
	return c
}

func missing(first, last uint64) string {
	if first == last {
		return fmt.Sprintf("event %d is missing", first)
	}
	return fmt.Sprintf("events %d to %d are missing", first, last)
}
