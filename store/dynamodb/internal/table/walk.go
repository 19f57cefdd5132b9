package table

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Span is a range of range keys under one hash key, in the table or in an index.
type Span struct {
	index   string // "": the table itself, which is read consistently
	hashKey string // names of the key attributes
	sortKey string
	hash    string
	lo, hi  string // inclusive
}

// AllSpans are the spans of indexAll that hold the range keys from lo to hi.
func AllSpans(namespace, lo, hi string) []Span {
	spans := make([]Span, partitions)
	for i := range spans {
		spans[i] = Span{IndexAll, AttrIndex, AttrSort, partitionName(namespace, i), lo, hi}
	}
	return spans
}

// Entry is an item that a walk found. Entries of an index have only keys.
type Entry struct {
	At    string // its range key in the walked table or index
	Key   Key
	Attrs map[string]types.AttributeValue
}

// Walk goes through several spans at once, in the order of range keys, and reads no further than required.
type Walk struct {
	t       *Table
	reverse bool
	after   string // where to begin, exclusive; "": at the start
	lines   []*line
}

// line is one Span of a walk.
type line struct {
	Span
	read  []Entry // read ahead
	start map[string]types.AttributeValue
	done  bool
}

// foreign reports whether an item that an index has is of another namespace. Whoever may write that item chooses its
// attributes, which must not disturb this namespace.
func (sp *Span) foreign(k Key) bool {
	namespace, _, _ := strings.Cut(sp.hash, "/")
	return sp.index != "" && !strings.HasPrefix(k.PK, namespace+"/")
}

// Walk returns a walk through spans, after a range key or from the start.
func (t *Table) Walk(spans []Span, reverse bool, after string) *Walk {
	w := &Walk{t: t, reverse: reverse, after: after}
	for _, sp := range spans {
		switch {
		case after == "":
		case reverse:
			sp.hi = after
		default:
			sp.lo = after
		}
		w.lines = append(w.lines, &line{Span: sp})
	}
	return w
}

// Next returns up to n entries, or fewer if there are no more.
func (w *Walk) Next(ctx context.Context, n int) ([]Entry, error) {
	var out []Entry
	for len(out) < n {
		if err := w.fill(ctx, n-len(out)); err != nil {
			return nil, err
		}
		var first *line
		for _, l := range w.lines {
			if len(l.read) > 0 && (first == nil || (l.read[0].At < first.read[0].At) != w.reverse) {
				first = l
			}
		}
		if first == nil {
			break
		}
		e := first.read[0]
		first.read = first.read[1:]
		if w.after == "" || e.At != w.after {
			out = append(out, e)
		}
	}
	return out, nil
}

// maxQueries is how many spans are read concurrently.
const maxQueries = 64

// fill reads on, concurrently, in all lines that have nothing read ahead. Each line reads as much of n as it is likely
// to contribute.
func (w *Walk) fill(ctx context.Context, n int) error {
	var wg sync.WaitGroup
	errs := make([]error, len(w.lines))
	turns := make(chan struct{}, maxQueries)
	each := n + 1 // the first may be the Entry at which the previous page ended
	if len(w.lines) > 1 {
		each = each*3/2/len(w.lines) + 4
	}
	for i, l := range w.lines {
		if len(l.read) == 0 && !l.done {
			wg.Go(func() {
				turns <- struct{}{}
				errs[i] = w.t.readLine(ctx, l, w.reverse, int32(each))
				<-turns
			})
		}
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// readLine reads on in a line until it has an Entry or reaches its end.
func (t *Table) readLine(ctx context.Context, l *line, reverse bool, most int32) error {
	for len(l.read) == 0 && !l.done {
		in := &dynamodb.QueryInput{
			TableName: &t.cfg.Table, ExclusiveStartKey: l.start, Limit: &most,
			ConsistentRead: aws.Bool(l.index == ""), ScanIndexForward: aws.Bool(!reverse),
			KeyConditionExpression:   aws.String("#h = :h AND #r BETWEEN :lo AND :hi"),
			ExpressionAttributeNames: map[string]string{"#h": l.hashKey, "#r": l.sortKey},
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":h": Str(l.hash), ":lo": Str(l.lo), ":hi": Str(l.hi),
			},
		}
		if l.index != "" {
			in.IndexName = &l.index
		}
		var out *dynamodb.QueryOutput
		err := t.Attempt(ctx, func(ctx context.Context) (err error) {
			out, err = t.cfg.Client.Query(ctx, in)
			return err
		})
		if err != nil {
			return t.Trouble("list", l.hash, err)
		}
		for _, attrs := range out.Items {
			key, err := KeyOf(attrs)
			at, err2 := Field(attrs, l.sortKey, Text)
			if err := errors.Join(err, err2); err != nil {
				return t.Damaged(key, err)
			}
			if l.foreign(key) {
				continue
			}
			l.read = append(l.read, Entry{at, key, attrs})
		}
		l.start = out.LastEvaluatedKey
		l.done = len(l.start) == 0
	}
	return nil
}
