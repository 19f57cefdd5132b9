package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/go-redis/redis_rate/v10"
	"golang.org/x/time/rate"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/engine"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store/dynamodb"
)

// behind makes the server's clock appear late.
type behind struct {
	sdk.HTTPClient
	by time.Duration
}

func (b behind) Do(r *http.Request) (*http.Response, error) {
	res, err := b.HTTPClient.Do(r)
	if err == nil {
		res.Header.Set("Date", time.Now().Add(-b.by).UTC().Format(http.TimeFormat))
	}
	return res, err
}

// skewProbe tests a fleet in which one clock is ahead. Limiters that use the server's time, as on Redis, are not
// affected and not tested.
func skewProbe() probe {
	const ahead, every = 10 * time.Minute, time.Second
	p := probe{
		name: "Clock skew",
		what: "60 tokens, one more each second. One instance takes them all; a second one, whose clock is 10 minutes " +
			"ahead, then makes 60 requests. Correct: only the tokens issued in between are admitted. weir makes no " +
			"decision before several answers of the table have confirmed the clock, and fails until then.",
	}
	size := func(e *harness.Env) int { return e.Few(60, 10) }
	judge := func(second tried, took time.Duration) finding {
		allowed := 1 + int(took/every)
		return finding{
			fmt.Sprintf("second instance: %s, %d allowed", second, allowed),
			second.Admitted <= allowed,
		}
	}
	pair := func(e *harness.Env, first, second asker) finding {
		began := time.Now()
		try(e.Ctx, first, "alice", size(e))
		t := try(e.Ctx, second, "alice", size(e))
		return judge(t, time.Since(began))
	}
	p.subjects = []subject{
		{"weir on DynamoDB", func(e *harness.Env) (finding, error) {
			askers, err := skewed(e, ahead, quota{size(e), every})
			if err != nil {
				return finding{}, err
			}
			return pair(e, askers[0], askers[1]), nil
		}},
		{"zae-limiter", func(e *harness.Env) (finding, error) {
			var a struct {
				Second  tried
				Seconds float64
			}
			err := askZae(e, &a, "skew", map[string]any{"tokens": size(e), "ahead": ahead.Seconds()})
			return judge(a.Second, time.Duration(a.Seconds*1e9)), err
		}},
		{"read, then write", func(e *harness.Env) (finding, error) {
			b, err := newReader(e, true, int64(size(e)), every)
			if err != nil {
				return finding{}, err
			}
			other := *b
			other.Now = func() time.Time { return time.Now().Add(ahead) }
			return pair(e, b.Allow, other.Allow), nil
		}},
	}
	return p
}

// skewed opens two instances on one table. The clocks of the server and of the first instance are behind this
// machine's. The second instance uses the machine's clock, which is ahead of both.
func skewed(e *harness.Env, ahead time.Duration, q quota) (askers []asker, err error) {
	name, err := engine.Create(e, dynamodb.CreateConfig{})
	if err != nil {
		return nil, err
	}
	for _, now := range []func() time.Time{func() time.Time { return time.Now().Add(-ahead) }, nil} {
		c, _, err := client(func(c sdk.HTTPClient) sdk.HTTPClient { return behind{c, ahead} })
		if err != nil {
			return nil, err
		}
		lim, err := open(e, dynamodb.Config{Client: c, Table: name, Now: now})
		if err != nil {
			return nil, err
		}
		if now != nil {
			err = admin.New(lim).Limits.Set(e.Ctx, drained.scope, q.limit())
		}
		if err != nil {
			return nil, err
		}
		askers = append(askers, one(lim))
	}
	return askers, nil
}

// loweredProbe tests a limit that is lowered while its bucket is in use.
func loweredProbe() probe {
	const was, now, asks = 1000, 10, 50
	p := probe{
		name: "Limit lowered live",
		what: "One of 1,000 tokens is spent, the limit is lowered to 10, and 50 requests follow. Correct: at most 10 " +
			"are admitted.",
	}
	judge := func(t tried) finding { return finding{t.String(), t.Admitted <= now && t.Failed == 0} }
	p.subjects = []subject{
		{"weir on DynamoDB", func(e *harness.Env) (finding, error) {
			lim, err := single(e)
			if err != nil {
				return finding{}, err
			}
			scope := admin.Scope{Entity: "alice", Resource: "api"}
			err = admin.New(lim).Limits.Set(e.Ctx, scope, drained.limit(was))
			try(e.Ctx, one(lim), "alice", 1)
			err = errors.Join(err, admin.New(lim).Limits.Set(e.Ctx, scope, drained.limit(now)))
			return judge(try(e.Ctx, one(lim), "alice", asks)), err
		}},
		{"zae-limiter", func(e *harness.Env) (finding, error) {
			var t tried
			err := askZae(e, &t, "lowered", map[string]any{"was": was, "now": now, "asks": asks})
			return judge(t), err
		}},
		{"x/time/rate", func(e *harness.Env) (finding, error) {
			lim := rate.NewLimiter(rate.Every(day), was)
			lim.Allow()
			lim.SetBurst(now)
			return judge(try(e.Ctx, func(context.Context, string) (bool, error) {
				return lim.Allow(), nil
			}, "", asks)), nil
		}},
		{"redis_rate", func(e *harness.Env) (finding, error) {
			addr, err := engine.Redis(e)
			if err != nil {
				return finding{}, err
			}
			lim := redis_rate.NewLimiter(redisClient(e, addr))
			ask := func(burst int) asker {
				return func(ctx context.Context, id string) (bool, error) {
					res, err := lim.Allow(ctx, id, redis_rate.Limit{Rate: 1, Period: day, Burst: burst})
					return err == nil && res.Allowed > 0, err
				}
			}
			try(e.Ctx, ask(was), "alice", 1)
			return judge(try(e.Ctx, ask(now), "alice", asks)), nil
		}},
	}
	return p
}

// usageProbe compares what was spent with the usage reported afterwards.
func usageProbe() probe {
	const entities, asks, extra = 3, 60, 2
	p := probe{
		name: "Usage totals",
		what: "60 requests from 3 users debit 1 token each and then adjust it by 2; usage is booked from the table's " +
			"stream. Correct: 180 tokens are booked.",
	}
	judge := func(spent, booked int) finding {
		return finding{fmt.Sprintf("%d booked of %d", booked, spent), booked == spent}
	}
	p.subjects = []subject{
		{"weir on DynamoDB", func(e *harness.Env) (finding, error) {
			booked, err := weirUsage(e, entities, asks, extra)
			return judge(asks*(1+extra), booked), err
		}},
		{"zae-limiter", func(e *harness.Env) (finding, error) {
			var a struct{ Spent, Booked int }
			err := askZae(e, &a, "usage", map[string]any{"entities": entities, "asks": asks, "extra": extra})
			return judge(a.Spent, a.Booked), err
		}},
	}
	return p
}

func weirUsage(e *harness.Env, entities, asks int, extra int64) (int, error) {
	name, err := engine.Create(e, dynamodb.CreateConfig{Stream: true})
	if err != nil {
		return 0, err
	}
	c, _, err := client()
	if err != nil {
		return 0, err
	}
	st, err := dynamodb.Open(e.Ctx, dynamodb.Config{Client: c, Table: name})
	if err != nil {
		return 0, err
	}
	lim, err := weir.New(weir.Config{Store: st, StoreTimeout: 10 * time.Second})
	if err != nil {
		return 0, err
	}
	e.Defer(lim.Close)
	if err := admin.New(lim).Limits.Set(e.Ctx, drained.scope, weir.PerMinute("rpm", 1_000_000)); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := spend(e, lim, entities, asks, extra); err != nil {
		return 0, err
	}
	stop, err := book(e, c, st, name)
	if err != nil {
		return 0, err
	}
	defer stop()
	return settled(e, lim, entities, began, asks*(1+int(extra)))
}

// spend has entities debit a token in turns, and adjust it by extra.
func spend(e *harness.Env, lim *weir.Limiter, entities, asks int, extra int64) error {
	for i := range asks {
		lease, err := lim.Acquire(e.Ctx, weir.Request{
			Entity: fmt.Sprint("user-", i%entities), Resource: "api", Tokens: weir.Tokens{"rpm": 1},
		})
		if err == nil {
			_, err = lease.Adjust(e.Ctx, weir.Tokens{"rpm": extra})
			err = errors.Join(err, lease.Commit(e.Ctx))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settled returns the usage that entities have when it stops changing. Usage is booked eventually: waiting also reveals
// if too much is booked. A quick run ends once all that was spent is booked.
func settled(e *harness.Env, lim *weir.Limiter, entities int, began time.Time, spent int) (booked int, err error) {
	// Real time: another goroutine reads the engine's stream.
	for last := time.Now(); time.Since(last) < time.Second &&
		time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		n := 0
		for i := range entities {
			sum, err := admin.New(lim).Usage.Sum(e.Ctx, admin.UsageQuery{
				Entity: fmt.Sprint("user-", i), Window: admin.Hourly, From: began,
			})
			if err != nil && !errors.Is(err, weir.ErrNoUsage) { // until the reader begins
				return 0, err
			}
			for _, u := range sum.Total.Limits {
				n += int(u.Consumed)
			}
		}
		if n != booked {
			booked, last = n, time.Now()
		}
		if e.Quick && n == spent {
			break
		}
	}
	return booked, nil
}

// book reads the table's stream, as weir aggregate does, until it is stopped.
func book(e *harness.Env, c *sdk.Client, st *dynamodb.Store, name string) (stop func(), err error) {
	url, err := dynamotest.Endpoint()
	if err != nil {
		return nil, err
	}
	made, err := c.DescribeTable(e.Ctx, &sdk.DescribeTableInput{TableName: &name})
	if err != nil {
		return nil, err
	}
	r := &stream.Reader{
		Config: stream.Config{Store: st}, ARN: *made.Table.LatestStreamArn, Poll: 20 * time.Millisecond,
		Streams: dynamodbstreams.New(dynamodbstreams.Options{
			BaseEndpoint: &url, Region: "us-east-1", Credentials: c.Options().Credentials,
		}),
	}
	ctx, cancel := context.WithCancel(e.Ctx)
	done := make(chan struct{})
	go func() {
		_ = r.Run(ctx) // anything that it fails to book is missing from the sums
		close(done)
	}()
	return func() { cancel(); <-done }, nil
}
