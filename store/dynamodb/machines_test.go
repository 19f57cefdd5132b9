package dynamodb_test

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// machine has the clocks of a process, and a proxy that dates the answers to its calls. True time is the bubble's.
type machine struct {
	*dynamotest.Fake

	start  time.Time
	tenant bool // it may read items of its namespace only

	mu     sync.Mutex
	wall   time.Duration // how far the wall clock is ahead
	asleep time.Duration // how long the machine was suspended
	lie    time.Duration // how far the dates are ahead
	lies   int           // after so many dates, the others are right; negative: all are wrong
	slow   time.Duration // how long the first read takes
	down   bool          // no call is answered
	denied int
}

// locked lets f use what the store's goroutines use as well.
func (m *machine) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *machine) clocks() (wall time.Time, mono time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Add(m.wall), time.Since(m.start) - m.asleep
}

// date dates an answer, which takes 10 ms to arrive.
func (m *machine) date(meta *middleware.Metadata) {
	date := time.Now()
	m.locked(func() {
		if m.lies != 0 {
			m.lies--
			date = date.Add(m.lie)
		}
	})
	time.Sleep(10 * time.Millisecond) // real time: none, all who call it are in a bubble
	header := http.Header{"Date": {date.UTC().Format(http.TimeFormat)}}
	answer := middleware.DeserializeHandlerFunc(func(context.Context, middleware.DeserializeInput) (
		out middleware.DeserializeOutput, md middleware.Metadata, err error,
	) {
		out.RawResponse = &smithyhttp.Response{Response: &http.Response{Header: header}}
		return out, md, nil
	})
	_, *meta, _ = awsmiddleware.RecordResponseTiming{}.HandleDeserialize(
		context.Background(), middleware.DeserializeInput{}, answer)
}

func (m *machine) UpdateItem(
	ctx context.Context, in *sdk.UpdateItemInput, opts ...func(*sdk.Options),
) (*sdk.UpdateItemOutput, error) {
	var down bool
	m.locked(func() { down = m.down })
	if down {
		return nil, context.DeadlineExceeded
	}
	out, err := m.Fake.UpdateItem(ctx, in, opts...)
	if err != nil {
		time.Sleep(10 * time.Millisecond) // real time: none, all who call it are in a bubble
		return nil, err
	}
	m.date(&out.ResultMetadata)
	return out, nil
}

func (m *machine) BatchGetItem(
	ctx context.Context, in *sdk.BatchGetItemInput, opts ...func(*sdk.Options),
) (*sdk.BatchGetItemOutput, error) {
	var slow time.Duration
	m.locked(func() { slow = m.slow })
	time.Sleep(slow) // real time: none, all who call it are in a bubble
	var down bool
	m.locked(func() { m.slow, down = 0, m.down })
	switch keys := in.RequestItems[stageTable].Keys; {
	case down:
		return nil, context.DeadlineExceeded
	case m.tenant && slices.ContainsFunc(keys, ofRegistry):
		m.locked(func() { m.denied++ })
		return nil, &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "not authorized"}
	}
	out, err := m.Fake.BatchGetItem(ctx, in, opts...)
	if err == nil {
		m.date(&out.ResultMetadata)
	}
	return out, err
}

func ofRegistry(key map[string]types.AttributeValue) bool {
	pk, _ := key["PK"].(*types.AttributeValueMemberS)
	return pk != nil && strings.HasPrefix(pk.Value, store.Registry+"/")
}

// fleet is processes on one table, which all want more of one limit than there is.
type fleet struct {
	t     *testing.T
	fake  *dynamotest.Fake
	limit *store.Limit

	mu      sync.Mutex
	level   int64         // of the token clock, by true time
	excess  int64         // the most that was admitted beyond it, in millitokens
	ahead   time.Duration // the most that a time in an item was ahead of the true one
	behind  time.Duration
	counted int64
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, fake: new(dynamotest.Fake), limit: per("rpm", 600, time.Minute, 100), level: math.MinInt64}
	f.fake.Changed = f.changed
	if _, err := dynamodb.Create(t.Context(), unscanned{f.fake}, stageTable, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	return f
}

// changed judges a write by true time: what it debited must fit.
func (f *fleet) changed(_ string, _, it map[string]types.AttributeValue) {
	number := func(name string) int64 {
		v, _ := it[name].(*types.AttributeValueMemberN)
		if v == nil {
			return 0
		}
		n, _ := strconv.ParseInt(v.Value, 10, 64)
		return n
	}
	if number("id") == 0 {
		return
	}
	now := clock.Nanos(time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	off := time.Duration(number("at") - now)
	f.ahead, f.behind = max(f.ahead, off), max(f.behind, -off)
	p := clock.Params{Amount: f.limit.Amount, Period: int64(f.limit.Period), Burst: f.limit.Burst}
	net := number("D_rpm") - number("R_rpm")
	f.level = clock.Spend(f.level, p.Clock(now), net-f.counted)
	f.counted = net
	f.excess = max(f.excess, f.level-p.Clock(now)-p.Burst)
}

// member is one process of a fleet.
type member struct {
	*machine

	s        *dynamodb.Store
	last     time.Time // when it was last admitted
	gap      time.Duration
	admitted int
}

// join adds a process that has opened the table.
func (f *fleet) join(m *machine) *member {
	return f.joinBy(m, func(cfg dynamodb.Config, clocks dynamodb.Machine) (*dynamodb.Store, error) {
		return dynamodb.OpenOn(f.t.Context(), cfg, clocks)
	})
}

func (f *fleet) joinBy(
	m *machine, open func(dynamodb.Config, dynamodb.Machine) (*dynamodb.Store, error),
) *member {
	m.Fake, m.start = f.fake, time.Now()
	s, err := open(dynamodb.Config{Client: m, Table: stageTable, Guard: -1, RejectionTTL: -1}, m.clocks)
	if err != nil {
		f.t.Fatal(err)
	}
	return &member{machine: m, s: s, last: time.Now()}
}

// run lets processes take for some time, each 20 times a second.
func (f *fleet) run(d time.Duration, ps ...*member) {
	var all sync.WaitGroup
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, p := range ps {
			all.Go(func() {
				time.Sleep(rand.N(50 * time.Millisecond)) // real time: none, all who call it are in a bubble
				f.take(p, 1)
			})
		}
		time.Sleep(50 * time.Millisecond) // real time: none, all who call it are in a bubble
	}
	all.Wait()
}

// take reports whether a process is admitted.
func (f *fleet) take(p *member, tokens int64) bool {
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
	defer cancel()
	out, err := p.s.Take(ctx, store.Take{Debits: []store.Debit{of(bkt("alice"), f.limit, tokens)}})
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	p.gap = max(p.gap, now.Sub(p.last))
	if err == nil && out.Allowed {
		p.last, p.admitted = now, p.admitted+1
	}
	return err == nil && out.Allowed
}

// fault lets a process have one fault.
func (f *fleet) fault(p *member, dice *rand.Rand) {
	by := []time.Duration{2 * time.Second, 7 * time.Second, time.Minute, time.Hour, 90 * 24 * time.Hour}[dice.IntN(5)]
	by += time.Duration(dice.Int64N(int64(by)))
	if dice.IntN(2) == 0 {
		by = -by
	}
	switch dice.IntN(4) {
	case 0:
		p.locked(func() { p.lie, p.lies = by, 1+dice.IntN(3) })
		f.run(5*time.Second, p)
	case 1:
		p.locked(func() { p.lie, p.lies = by, -1 })
		f.run(time.Duration(dice.Int64N(int64(time.Minute))), p)
		p.locked(func() { p.lies = 0 })
	case 2:
		p.locked(func() { p.wall += by })
	default:
		asleep := 5*time.Second + time.Duration(dice.Int64N(int64(30*time.Second)))
		time.Sleep(asleep) // real time: none, all who call it are in a bubble
		p.locked(func() { p.asleep += asleep })
		p.last = time.Now()
	}
}

func (f *fleet) check(ps ...*member) {
	f.t.Helper()
	f.checkWithin(0, ps...)
}

// checkWithin checks processes of which each other two may differ by some time, for which the limit counts once.
func (f *fleet) checkWithin(off time.Duration, ps ...*member) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	p := clock.Params{Amount: f.limit.Amount, Period: int64(f.limit.Period)}
	if f.counted == 0 {
		f.t.Error("nothing was written")
	}
	if f.excess > p.Clock(int64(off)) || f.ahead > off || f.behind > off {
		f.t.Errorf("admitted %d millitokens too much; times in items up to %v ahead, %v behind", f.excess, f.ahead, f.behind)
	}
	for i, p := range ps {
		if off == 0 && p.gap > 5*time.Second || p.admitted == 0 { // who is behind may get nothing
			f.t.Errorf("process %d: %d admitted, none for %v", i, p.admitted, p.gap)
		}
	}
}
