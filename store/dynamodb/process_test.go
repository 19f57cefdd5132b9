package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// process is one process's connection to the table. Its writes can be watched and made to fail, and it can be killed.
type process struct {
	*dynamotest.Fake

	before func(op string, in any) error // called before each write; if it returns an error, the caller gets that instead
	after  func(op string, in any) error // called once the write was applied, or its condition failed

	turn chan struct{} // if not nil, of capacity one: the writes come one after another
}

var errKilled = errors.New("the process is dead")

func written[I, O any](p *process, op string, in *I, call func() (*O, error)) (*O, error) {
	if p.turn != nil {
		p.turn <- struct{}{}
		defer func() { <-p.turn }()
	}
	if p.before != nil {
		if err := p.before(op, in); err != nil {
			return nil, err
		}
	}
	out, err := call()
	if p.after != nil {
		if err := p.after(op, in); err != nil {
			return nil, err
		}
	}
	return out, err
}

func (p *process) UpdateItem(ctx context.Context, in *sdk.UpdateItemInput, o ...func(*sdk.Options)) (*sdk.UpdateItemOutput, error) {
	return written(p, "UpdateItem", in, func() (*sdk.UpdateItemOutput, error) { return p.Fake.UpdateItem(ctx, in, o...) })
}

func (p *process) PutItem(ctx context.Context, in *sdk.PutItemInput, o ...func(*sdk.Options)) (*sdk.PutItemOutput, error) {
	return written(p, "PutItem", in, func() (*sdk.PutItemOutput, error) { return p.Fake.PutItem(ctx, in, o...) })
}

func (p *process) DeleteItem(ctx context.Context, in *sdk.DeleteItemInput, o ...func(*sdk.Options)) (*sdk.DeleteItemOutput, error) {
	return written(p, "DeleteItem", in, func() (*sdk.DeleteItemOutput, error) { return p.Fake.DeleteItem(ctx, in, o...) })
}

func (p *process) TransactWriteItems(ctx context.Context, in *sdk.TransactWriteItemsInput, o ...func(*sdk.Options)) (*sdk.TransactWriteItemsOutput, error) {
	return written(p, "TransactWriteItems", in, func() (*sdk.TransactWriteItemsOutput, error) { return p.Fake.TransactWriteItems(ctx, in, o...) })
}

// kill ends the process before its n-th write from now, counted from 1, or right after that was applied. dead is set when
// it has come that far.
func (p *process) kill(n int, applied bool, dead *bool) {
	var mu sync.Mutex
	p.before = func(string, any) error {
		mu.Lock()
		defer mu.Unlock()
		if n--; n < 0 || n == 0 && !applied {
			*dead = true
			return errKilled
		}
		return nil
	}
	p.after = func(string, any) error {
		mu.Lock()
		defer mu.Unlock()
		if *dead = *dead || n == 0; *dead {
			return errKilled
		}
		return nil
	}
}

// join opens a store with its own process.
func (st *stage) join(change ...func(*dynamodb.Config)) (*dynamodb.Store, *process) {
	st.Helper()
	p := &process{Fake: st.fake}
	return st.open(append([]func(*dynamodb.Config){noGuard, noMemory, func(c *dynamodb.Config) { c.Client = p }}, change...)...), p
}

// shard returns the item of a bucket's shard, or nil.
func (st *stage) shard(b store.Bucket, k int) map[string]types.AttributeValue {
	pk := fmt.Sprintf("%s/BUCKET#%s#%s#%d", b.Namespace, b.Entity, b.Resource, k)
	for _, it := range st.fake.Items(stageTable) {
		if it["PK"].(*types.AttributeValueMemberS).Value == pk {
			return it
		}
	}
	return nil
}

// intOf returns a number of an item; 0 if it has none.
func intOf(it map[string]types.AttributeValue, attr string) int64 {
	v, ok := it[attr].(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// shards returns the number of shards of a bucket, by its first shard.
func (st *stage) shards(b store.Bucket) int { return max(1, int(intOf(st.shard(b, 0), "sc"))) }

// split splits a bucket until it has n shards.
func (st *stage) split(s *dynamodb.Store, b store.Bucket, n int) {
	st.Helper()
	if have, err := s.Split(st.Context(), b, n); err != nil || have != n {
		st.Fatalf("%d shards, want %d: %v", have, n, err)
	}
	for k := range n {
		if got := int(intOf(st.shard(b, k), "sc")); n > 1 && got != n {
			st.Fatalf("shard %d is one of %d, want %d", k, got, n)
		}
	}
}

// books record what was debited and returned of one limit in all buckets, in order, from the items' counters. The writes
// must come one at a time.
type books struct {
	limit  *store.Limit
	last   map[string][2]int64
	events map[string][]event // events by bucket
}

type event struct{ debited, returned, clock int64 }

// keep starts keeping books. Forced debits must concern other limits.
func (st *stage) keep(l *store.Limit) *books {
	g := &books{limit: l, last: map[string][2]int64{}, events: map[string][]event{}}
	for _, it := range st.fake.Items(stageTable) {
		g.last[it["PK"].(*types.AttributeValueMemberS).Value] = [2]int64{intOf(it, "D_"+l.Name), intOf(it, "R_"+l.Name)}
	}
	var mu sync.Mutex
	st.fake.After = func(_ string, in, out any) error {
		mu.Lock()
		defer mu.Unlock()
		u, ok := out.(*sdk.UpdateItemOutput)
		if !ok {
			if d, ok := in.(*sdk.DeleteItemInput); ok {
				if _, done := out.(*sdk.DeleteItemOutput); done {
					delete(g.last, d.Key["PK"].(*types.AttributeValueMemberS).Value)
				}
			}
			return nil
		}
		pk := u.Attributes["PK"].(*types.AttributeValueMemberS).Value
		is := [2]int64{intOf(u.Attributes, "D_"+l.Name), intOf(u.Attributes, "R_"+l.Name)}
		was := g.last[pk]
		g.last[pk] = is
		if is[0] < was[0] || is[1] < was[1] {
			was = [2]int64{} // forgotten
		}
		p := clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}
		name := pk[:strings.LastIndexByte(pk, '#')]
		g.events[name] = append(g.events[name], event{is[0] - was[0], is[1] - was[1], p.Clock(intOf(u.Attributes, "at"))})
		return nil
	}
	return g
}

// check checks I1 between any two debits.
func (g *books) check() error {
	for name, events := range g.events {
		sum, least := int64(0), int64(math.MaxInt64)
		for i, e := range events {
			if e.debited > 0 {
				least = min(least, sum-e.clock)
			}
			sum += e.debited - e.returned
			if over := sum - e.clock - g.limit.Burst; e.debited > 0 && over > least {
				return fmt.Errorf("%s: over-admitted by %d millitokens at write %d of %+v", name, over-least, i, events)
			}
		}
	}
	return nil
}

// net returns what was debited and not returned.
func (g *books) net() (sum int64) {
	for _, events := range g.events {
		for _, e := range events {
			sum += e.debited - e.returned
		}
	}
	return sum
}

// of returns the net amount of one bucket.
func (g *books) of(b store.Bucket) (sum int64) {
	for _, e := range g.events[b.Namespace+"/BUCKET#"+b.Entity+"#"+b.Resource] {
		sum += e.debited - e.returned
	}
	return sum
}

// raw is a limit in millitokens.
func raw(name string, amount int64, burst int64) *store.Limit {
	return &store.Limit{Name: name, Amount: amount, Period: 60e9, Burst: burst}
}

// charge is a debit of millitokens of one limit.
func charge(b store.Bucket, l *store.Limit, amount int64) store.Debit {
	return store.Debit{Bucket: b, Charges: []store.Charge{{Limit: l, Amount: amount}}, Epoch: 1}
}

func (st *stage) must(err error) {
	st.Helper()
	if err != nil {
		st.Fatal(err)
	}
}

var _ testing.TB = (*stage)(nil)

// isUndo reports whether a call is the write of an undo, which asserts the item's count of writes.
func isUndo(in any) bool {
	u, ok := in.(*sdk.UpdateItemInput)
	if !ok {
		return false
	}
	for alias, name := range u.ExpressionAttributeNames {
		if name == "wc" && strings.Contains(*u.ConditionExpression, alias+" = ") {
			return true
		}
	}
	return false
}

// hold holds back the process's undos, which are planned already, until the returned function is called.
func (p *process) hold() (release func()) {
	held := make(chan struct{})
	p.before = func(_ string, in any) error {
		if isUndo(in) {
			<-held
		}
		return nil
	}
	return sync.OnceFunc(func() { close(held) })
}
