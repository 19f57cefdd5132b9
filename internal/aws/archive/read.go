package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Query selects events of one namespace.
type Query struct {
	Namespace string // the opaque ID
	Subject   string // "" matches all
	From, To  time.Time
	After     string // only events older than the one with this ID
	Max       int    // maximum number of events; 0 means all
}

// Namespaces returns the opaque IDs of the namespaces that have events in an archive.
func Namespaces(ctx context.Context, b Bucket) ([]string, error) {
	names, err := b.List(ctx, root)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, name := range names {
		if id, _, _, ok := parse(name); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// parse returns the namespace and day of an object, and ok=false if the archive did not write it.
func parse(name string) (namespace string, from, to time.Time, ok bool) {
	rest, ok := strings.CutPrefix(name, root+"namespace=")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 || !strings.HasSuffix(name, suffix) {
		return "", from, to, false
	}
	from, err := time.Parse(time.DateOnly, strings.TrimPrefix(parts[1], "dt="))
	return unescaper.Replace(parts[0]), from, from.AddDate(0, 0, 1), err == nil
}

// Read returns archived events, newest first, each once. It reads one day at a time, and no more days than it needs.
func Read(ctx context.Context, b Bucket, q Query) ([]Event, error) {
	names, err := b.List(ctx, root+"namespace="+escaper.Replace(q.Namespace)+"/")
	if err != nil {
		return nil, err
	}
	days := make(map[time.Time][]string)
	var order []time.Time
	for _, name := range names {
		ns, from, to, ok := parse(name)
		if !ok || ns != q.Namespace || !q.From.IsZero() && !to.After(q.From) || !q.To.IsZero() && !from.Before(q.To) {
			continue
		}
		if days[from] == nil {
			order = append(order, from)
		}
		days[from] = append(days[from], name)
	}
	slices.SortFunc(order, func(a, b time.Time) int { return b.Compare(a) })
	var all []Event
	for _, d := range order {
		found, err := q.day(ctx, b, days[d])
		if err != nil {
			return nil, err
		}
		if all = append(all, found...); q.Max > 0 && len(all) >= q.Max {
			return all[:q.Max], nil
		}
	}
	return all, nil
}

// day returns the events in some objects that match the query, in order.
func (q *Query) day(ctx context.Context, b Bucket, names []string) ([]Event, error) {
	var found []Event
	for _, name := range names {
		content, err := b.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		events, err := unpack(content)
		if err != nil {
			return nil, fmt.Errorf("archive object %s: %w", name, err)
		}
		for _, e := range events {
			if q.selects(&e) {
				found = append(found, e)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Event) int { return cmp.Compare(b.ID, a.ID) })
	return slices.CompactFunc(found, func(a, b Event) bool { return a.ID == b.ID }), nil
}

func (q *Query) selects(e *Event) bool {
	return (q.Subject == "" || q.Subject == e.Subject) && (q.After == "" || e.ID < q.After) &&
		(q.From.IsZero() || !e.At.Before(q.From)) && (q.To.IsZero() || e.At.Before(q.To))
}

func unpack(content []byte) ([]Event, error) {
	zr, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	var events []Event
	for dec := json.NewDecoder(bufio.NewReader(zr)); ; {
		var e Event
		switch err := dec.Decode(&e); {
		case errors.Is(err, io.EOF):
			return events, nil
		case err != nil:
			return nil, err
		}
		events = append(events, e)
	}
}
