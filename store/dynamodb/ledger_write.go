package dynamodb

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/internal/usage"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// maxTransact is the maximum number of items that a transaction may write.
const maxTransact = 100

// account is the stored account of a source, as it was read.
type account struct {
	src     *source
	version uint64 // 0: none stored
	seen    usage.Source
	deltas  []usage.Delta
	rest    []usage.Sight // sights of later hours, which are booked afterwards
	bad     error         // why it cannot be read
}

// written reports whether the account has anything to write.
func (a *account) written() bool { return len(a.deltas) > 0 || a.seen.Begun() }

// window is a window's key.
type window struct {
	namespace string
	window    store.Window
	of        store.UsageOf
	part      int
	start     int64
	id, sub   string
}

// sums are the changes to windows, by attribute.
type sums map[window]map[string]int64

// book counts what sources say. Records that were not counted are added to failed.
func (l *Ledger) book(ctx context.Context, sources []*source, failed map[int]error) {
	fail := func(sources []*source, err error) {
		for _, src := range sources {
			for _, i := range src.records {
				failed[i] = err
			}
		}
	}
	for try := 0; len(sources) > 0; try++ {
		accounts, err := l.read(ctx, sources)
		if err != nil {
			fail(sources, err)
			return
		}
		buckets := make([]store.Bucket, len(sources))
		for i, src := range sources {
			buckets[i] = src.bucket
		}
		chains, err := l.above(ctx, buckets)
		if err != nil {
			fail(sources, err)
			return
		}
		accounts = slices.DeleteFunc(accounts, func(a account) bool {
			if a.bad != nil {
				fail([]*source{a.src}, a.bad)
			}
			return a.bad != nil
		})
		var again []*source
		progress := false
		for most := len(accounts); len(accounts) > 0; {
			n, changed := l.fill(accounts[:min(most, len(accounts))], chains)
			err := l.commit(ctx, accounts[:n], changed)
			switch {
			case !unwritable(err):
			case n > 1: // one of them is unwritable: try them one at a time
				most = 1
				continue
			default:
				err = poison(accounts[0].src.key, err)
			}
			for i := range accounts[:n] {
				a := &accounts[i]
				switch {
				case err == nil && len(a.rest) == 0:
				case err == nil:
					a.src.sights, progress = a.rest, true
					again = append(again, a.src)
				case reread(err):
					again = append(again, a.src)
				default:
					fail([]*source{a.src}, err)
				}
			}
			accounts = accounts[n:]
		}
		if sources = again; progress {
			try = -1
		}
		if try >= maxRereads {
			fail(sources, l.s.calls.Trouble("usage", "", errContended))
			return
		}
	}
}

const maxRereads = 10

var errContended = errors.New("other processes keep counting the same records")

// read reads the accounts of sources and makes them see what is new, up to the end of an hour.
func (l *Ledger) read(ctx context.Context, sources []*source) ([]account, error) {
	keys := make([]table.Key, len(sources))
	for i, src := range sources {
		keys[i] = src.key
	}
	found, err := l.s.calls.BatchGet(ctx, keys)
	if err != nil {
		return nil, err
	}
	accounts := make([]account, len(sources))
	for i, src := range sources {
		a := &accounts[i]
		a.src = src
		if attrs := found[src.key]; attrs != nil {
			raw, err := table.Field(attrs, table.AttrValue, table.Binary)
			if err == nil {
				a.version, err = table.Field(attrs, table.AttrVersion, table.Unsigned)
			}
			if err == nil {
				err = a.seen.Decode(raw)
			}
			if err != nil { // the other accounts can still be counted
				a.bad = poison(src.key, err)
				continue
			}
		}
		n := 1
		for n < len(src.sights) && src.sights[n].Minute/60 == src.sights[0].Minute/60 {
			n++
		}
		a.rest = src.sights[n:]
		a.deltas = a.seen.See(src.sights[:n], src.late)
	}
	return accounts, nil
}

// fill returns how many of the accounts fit in one transaction, and the changes to their windows.
func (l *Ledger) fill(accounts []account, chains map[store.Key][]string) (int, sums) {
	changed := make(sums)
	writes := 0
	for i := range accounts {
		a := &accounts[i]
		if !a.written() {
			continue
		}
		b := a.src.bucket
		chain := chains[store.Key{Namespace: b.Namespace, Kind: store.KindEntity, ID: b.Entity}]
		fresh := 0
		l.each(a, chain, func(w window, _ *usage.Delta) {
			if _, ok := changed[w]; !ok {
				fresh++ // an upper bound: a window may be counted more than once
			}
		})
		if i > 0 && writes+1+len(changed)+fresh > maxTransact {
			// It may still fit if each window is counted once.
			distinct := make(map[window]bool)
			l.each(a, chain, func(w window, _ *usage.Delta) {
				if _, ok := changed[w]; !ok {
					distinct[w] = true
				}
			})
			if writes+1+len(changed)+len(distinct) > maxTransact {
				return i, changed
			}
		}
		writes++
		l.each(a, chain, func(w window, d *usage.Delta) {
			name, _, _ := parseLimitName(d.Limit)
			if changed[w] == nil {
				changed[w] = make(map[string]int64)
			}
			figure, amount := inWindow(d)
			changed[w][usage.Letters[figure:figure+1]+"_"+name] += amount
		})
	}
	return len(accounts), changed
}

// each calls f for the windows that an account's deltas belong to.
func (l *Ledger) each(a *account, chain []string, f func(window, *usage.Delta)) {
	b := a.src.bucket
	for i := range a.deltas {
		d := &a.deltas[i]
		f(window{b.Namespace, d.Window, store.OfBucket, table.PartOf(b.Entity), d.Start, b.Entity, b.Resource}, d)
		if d.Figure == usage.Peak {
			continue
		}
		f(window{b.Namespace, d.Window, store.OfResource, l.part, d.Start, b.Resource, ""}, d)
		f(window{b.Namespace, d.Window, store.OfNamespace, l.part, d.Start, "", ""}, d)
		f(window{store.Registry, d.Window, store.OfStore, l.part, d.Start, "", ""}, d)
		for _, up := range chain {
			f(window{b.Namespace, d.Window, store.OfChildren, l.part, d.Start, up, b.Resource}, d)
		}
	}
}

// commit writes accounts and windows in one transaction, unless one of the accounts was changed in the meantime.
func (l *Ledger) commit(ctx context.Context, accounts []account, changed sums) error {
	in := &dynamodb.TransactWriteItemsInput{}
	for i := range accounts {
		if a := &accounts[i]; a.written() {
			in.TransactItems = append(in.TransactItems, types.TransactWriteItem{Put: l.put(a)})
		}
	}
	for w, by := range changed {
		if u := l.update(w, by); u != nil {
			in.TransactItems = append(in.TransactItems, types.TransactWriteItem{Update: u})
		}
	}
	if len(in.TransactItems) == 0 {
		return nil // nothing new
	}
	ctx, cancel := l.s.calls.Within(ctx)
	defer cancel()
	err := l.s.calls.Attempt(ctx, func(ctx context.Context) error {
		_, err := l.s.cfg.Client.TransactWriteItems(ctx, in, table.Once...)
		return err
	})
	if err != nil && !reread(err) {
		return l.s.calls.Trouble("usage", accounts[0].src.key.String(), err)
	}
	return err
}

func (l *Ledger) put(a *account) *types.Put {
	it := a.src.key.Item()
	it[table.AttrVersion] = table.Num(a.version + 1)
	it[table.AttrValue] = &types.AttributeValueMemberB{Value: a.seen.Append(nil)}
	it[table.AttrTTL] = table.Num(l.s.clock().Add(a.src.keep).Unix())
	p := &types.Put{TableName: &l.s.cfg.Table, Item: it}
	if a.version == 0 {
		p.ConditionExpression = aws.String("attribute_not_exists(#p)")
		p.ExpressionAttributeNames = map[string]string{"#p": table.AttrPK}
		return p
	}
	p.ConditionExpression = aws.String("#v = :v")
	p.ExpressionAttributeNames = map[string]string{"#v": table.AttrVersion}
	p.ExpressionAttributeValues = map[string]types.AttributeValue{":v": table.Num(a.version)}
	return p
}

func (l *Ledger) update(w window, by map[string]int64) *types.Update {
	u := &types.Update{
		TableName: &l.s.cfg.Table, Key: w.key().Item(),
		ExpressionAttributeNames:  make(map[string]string),
		ExpressionAttributeValues: make(map[string]types.AttributeValue),
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if by[name] == 0 {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("ADD ")
		} else {
			b.WriteString(", ")
		}
		n := strconv.Itoa(len(u.ExpressionAttributeNames))
		b.WriteString("#" + n + " :" + n)
		u.ExpressionAttributeNames["#"+n], u.ExpressionAttributeValues[":"+n] = name, table.Num(by[name])
	}
	if b.Len() == 0 {
		return nil
	}
	if until := l.until(w); until > 0 {
		b.WriteString(" SET #t = :t")
		u.ExpressionAttributeNames["#t"], u.ExpressionAttributeValues[":t"] = table.AttrTTL, table.Num(until)
	}
	u.UpdateExpression = aws.String(b.String())
	return u
}

// until returns when a window expires, in Unix seconds. 0: never.
func (l *Ledger) until(w window) int64 {
	r, otherwise := l.retention.Hourly, 90*24*time.Hour
	switch w.window {
	case store.Hourly:
	case store.Daily:
		r, otherwise = l.retention.Daily, 2*365*24*time.Hour
	case store.Monthly:
		r, otherwise = l.retention.Monthly, -1
	}
	if r = cmp.Or(r, otherwise); r < 0 {
		return 0
	}
	return usage.Next(w.window, time.Unix(w.start, 0).UTC()).Add(r).Unix()
}

func (w *window) key() table.Key {
	return table.Key{
		PK: table.UsagePartition(w.namespace, w.window, w.of, w.part),
		SK: table.UsageSort(table.SpellStart(w.window, time.Unix(w.start, 0)), w.id, w.sub),
	}
}

// reread reports whether a transaction failed because an account has changed since it was read.
func reread(err error) bool {
	return slices.ContainsFunc(
		table.Canceled(err),
		func(r types.CancellationReason) bool { return aws.ToString(r.Code) == table.ReasonCondition },
	)
}

// unwritable reports whether DynamoDB will never accept a transaction as it is, for instance because a name that a
// process reported makes a key too long, or because an account is too large.
func unwritable(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == table.CodeValidation ||
		slices.ContainsFunc(
			table.Canceled(err),
			func(r types.CancellationReason) bool { return aws.ToString(r.Code) == table.ReasonValidation },
		)
}
