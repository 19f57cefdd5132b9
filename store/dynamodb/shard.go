package dynamodb

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/batch"
	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/hold"
	"github.com/weirlimits/weir/internal/batch/hot"
	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// shard makes the writes to one item, one at a time. What they carry is planned by [plan.Plan].
type shard struct {
	s     *Store
	b     *bucket
	k     int
	pk    table.Key
	key   map[string]types.AttributeValue // the same for the SDK; nil until it makes a write
	queue *batch.Queue[*waiter, *plan.Write]

	// Guarded by the queue's lock.
	state   plan.State
	back    int32 // how often the time had been set back when the state was last used
	meter   hot.Meter
	surplus surplus

	jobs   []*plan.Job // space for those to plan
	aboard []*waiter   // space for those that a write carries
}

// waiter is a job that waits for its answer.
type waiter struct {
	batch.Waiter

	job     plan.Job
	expires time.Time // when to give up
	answer  plan.Answer
	err     error
	told    bool // answered from memory: it never joined a queue
	undone  bool // what it took is being returned

	space [4]int64
}

func (b *bucket) newShard(k int) *shard {
	sh := &shard{s: b.s, b: b, k: k, pk: table.BucketKey(b.key, k)}
	sh.state = plan.State{Rules: &b.s.rules, Latest: math.MinInt64}
	sh.queue = batch.NewQueue(&b.s.writes, sh, nil)
	return sh
}

// waiter returns a waiter whose job has no amounts yet.
func (sh *shard) waiter(k plan.Kind, v *plan.View, epoch uint64) *waiter {
	return new(waiter).init(k, v, epoch)
}

func (x *waiter) init(k plan.Kind, v *plan.View, epoch uint64) *waiter {
	x.job.Kind, x.job.View, x.job.Epoch = k, v, epoch
	if v == nil {
		return x
	}
	if n := len(v.Limits); n <= len(x.space) {
		x.job.Amounts = x.space[:n]
	} else {
		x.job.Amounts = make([]int64, n)
	}
	return x
}

// nothing reports whether the job has no amounts.
func (x *waiter) nothing() bool { return !slices.ContainsFunc(x.job.Amounts, nonzero) }

func nonzero(a int64) bool { return a != 0 }

// allowed reports whether the job is known to have been admitted.
func (x *waiter) allowed() bool { return x.err == nil && x.answer.Verdict == plan.Allowed }

// describe names the item for messages.
func (sh *shard) describe() string { return sh.s.cfg.Table + " " + sh.b.key.String() }

// place returns the shard's place.
func (sh *shard) place() plan.Place { return plan.Place{K: sh.k, N: len(sh.b.all())} }

// clock returns the time of the store's clock. If that was wrong and has been set back, the state follows it. The queue
// must be locked.
func (sh *shard) clock() time.Time {
	if back := sh.s.calls.Skew.SetBack(); back != sh.back {
		sh.back, sh.state.Latest = back, math.MinInt64
	}
	return sh.s.calls.Clock()
}

// tick returns the time at which to judge now. The queue must be locked.
func (sh *shard) tick() int64 { return sh.state.Tick(sh.clock()) }

// raise makes the shard judge at no time before now, the time at which another bucket of the same take or settle
// judges. Back is how often the time had been set back before now was read: if it has been since, now is forgotten.
func (sh *shard) raise(now int64, back int32) int64 {
	sh.queue.Lock()
	defer sh.queue.Unlock()
	sh.state.Latest, sh.back = max(sh.tick(), now), back
	return sh.state.Latest
}

// last returns the item as it was last seen; nil: not yet.
func (sh *shard) last() *plan.Item {
	sh.queue.Lock()
	defer sh.queue.Unlock()
	return sh.state.Last
}

// add queues a job for a write. The queue must be locked.
func (sh *shard) add(x *waiter) {
	x.job.Since, x.job.Came = sh.state.Sent, sh.tick()
	if x.expires.IsZero() {
		x.expires = time.Now().Add(sh.s.cfg.WriteTimeout)
	}
	if !sh.queue.Add(x) {
		x.told, x.err = true, store.ErrClosed
	}
}

// Prepare implements [batch.Writer]: it plans the next write.
func (sh *shard) Prepare(waiting []*waiter) (w *plan.Write, aboard, later []*waiter, ok bool) {
	waiting = sh.dropLate(waiting, time.Now())
	at := sh.clock()
	sh.state.On, sh.state.Roots.TTL = sh.place(), sh.b.rootTTL.Load()
	jobs := sh.jobs[:0]
	for i, x := range waiting {
		x.job.N = i
		jobs = append(jobs, &x.job)
	}
	if j := sh.ahead(at); j != nil {
		jobs = append(jobs, j)
	}
	state, w, rest := plan.Plan(sh.state, jobs, at)
	sh.state, sh.jobs = state, jobs
	clear(jobs)
	for _, a := range w.Answers {
		sh.answer(waiting[a.Job.N], a)
	}
	sh.aboard = sh.aboard[:0]
	for i := range w.Entries {
		if j := w.Entries[i].Job; j.Ahead == 0 {
			sh.aboard = append(sh.aboard, waiting[j.N])
		}
	}
	later = waiting[:0] // the jobs that wait keep their order
	for _, j := range rest {
		if j.Ahead == 0 {
			later = append(later, waiting[j.N])
		}
	}
	clear(waiting[len(later):])
	w.Birth = sh.s.births.Add(1)
	return w, sh.aboard, later, w.Number > 0
}

// dropLate answers, with an error, the jobs whose time is up, and the takes whose callers have left.
func (sh *shard) dropLate(waiting []*waiter, wall time.Time) []*waiter {
	return slices.DeleteFunc(waiting, func(x *waiter) bool {
		switch {
		case x.Left() && x.job.Kind == plan.Take:
			x.err = context.Canceled
		case wall.After(x.expires):
			x.err = &store.Error{
				Op: "write", Key: sh.describe(), Err: errors.Join(x.err, context.DeadlineExceeded),
				Hint: "its writes did not succeed in time", Extent: store.ExtentOf(x.err),
			}
		default:
			return false
		}
		sh.queue.Answer(x)
		return true
	})
}

// Write implements [batch.Writer]: it makes a planned write, and hands out the answers.
func (sh *shard) Write(w *plan.Write, aboard []*waiter) (again []*waiter, pause time.Duration) {
	got, err := sh.send(w)
	sh.s.measures.wrote(len(aboard), got.Applied, err)
	trouble := err
	if err != nil {
		trouble = sh.s.calls.Trouble("write", sh.describe(), err)
	}
	sh.queue.Lock()
	defer sh.queue.Unlock()
	sh.queue.Ended(trouble)
	state, answers := plan.Judge(sh.state, w, got)
	sh.state = state
	if sh.k == 0 && got.Item != nil {
		sh.b.saw(got.Item)
	}
	for i := range answers {
		a := answers[i]
		if a.Job.Ahead > 0 {
			sh.keep(w, a)
			continue
		}
		x := aboard[i]
		switch a.Verdict {
		case plan.Again:
			if x.err = trouble; err == nil { // the error is reported if its time is up before the next try
				x.job.Tries++
			}
			again = append(again, x)
		case plan.Failed:
			x.err = trouble
			sh.queue.Answer(x)
		default:
			sh.answer(x, a)
			if x.job.Kind == plan.Take && x.Left() && x.allowed() {
				sh.takeBack(x)
			}
		}
	}
	if got.Applied {
		sh.s.measures.corrected.Add(plan.Corrects(w))
	}
	if sh.meter.Saw(w.On, w.Now, &got) {
		sh.b.grow(2 * w.On.N)
	}
	clear(aboard) // the space must not keep requests alive that have been answered
	if len(again) > 0 {
		pause = jitter(state.Pause())
	}
	return again, pause
}

// gaveUp returns the error of a job that was not answered before its context ended.
func (sh *shard) gaveUp(op string, err error) error {
	late := (*store.Error)(nil)
	if !errors.As(err, &late) {
		return sh.s.calls.Trouble(op, sh.describe(), err)
	}
	late.Op, late.Key = op, sh.describe()
	return late
}

// jitter returns a random duration, up to most.
func jitter(most time.Duration) time.Duration { return rand.N(most + 1) }

// verdicts are the errors of verdicts that are errors.
var verdicts = map[plan.Verdict]error{
	plan.Stale: store.ErrStaleLimits, plan.TooMany: store.ErrTooManyOverrides, plan.Overflow: store.ErrOverflow,
	plan.TooMuch: store.TooManyFormer(store.MaxFormer + 1),
}

// answer ends a job. The queue must be locked.
func (sh *shard) answer(x *waiter, a plan.Answer) {
	x.answer, x.err = a, verdicts[a.Verdict]
	switch a.Verdict {
	case plan.Ended:
		x.err = &store.PhaseError{At: clock.Time(a.At)}
	case plan.Held:
		x.err = &store.KindError{Bucket: sh.b.key, Limit: a.Item.Holds(a.Job.View), Held: true}
	default:
	}
	sh.queue.Answer(x)
}

// takeBack gives back what a take was debited. It returns the job that does so, or nil if none is needed. The queue
// must be locked.
func (sh *shard) takeBack(x *waiter) *waiter {
	if slices.ContainsFunc(x.answer.Amounts, nonzero) {
		return sh.undo(x.answer.Undo())
	}
	if x.job.Counts {
		sh.state.Count(plan.Counts{ID: x.answer.Item.ID, Undone: 1})
	}
	return nil
}

// undo queues a job that undoes a debit. The queue must be locked.
func (sh *shard) undo(j *plan.Job) *waiter {
	x := &waiter{job: *j, expires: time.Now().Add(10 * sh.s.cfg.WriteTimeout)}
	sh.add(x)
	return x
}

// send makes a write.
func (sh *shard) send(w *plan.Write) (got plan.Got, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), sh.s.cfg.CallTimeout)
	defer cancel()
	if err := sh.s.calls.Timely(ctx, sh.pk); err != nil {
		skew := &sh.s.calls.Skew
		return plan.Got{Repeat: skew.Confirmed() || skew.Unseen() && table.Transient(err)}, err
	}
	var attrs map[string]types.AttributeValue
	if w.Deletes() {
		err = sh.erase(ctx, w)
	} else {
		attrs, err = sh.update(ctx, w)
	}
	if got.Applied = err == nil; err != nil {
		if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
			attrs, err = failed.Item, nil
		}
	}
	if err == nil {
		var bad error
		if got.Item, bad = table.ParseItem(attrs); bad != nil {
			err = sh.s.calls.Damaged(sh.pk, bad)
		}
	} else if table.InvalidWrite(err) {
		err = sh.diagnose(err)
	}
	if err != nil {
		var damaged *store.Error
		repeat := table.Transient(err) && !errors.As(err, &damaged)
		got = plan.Got{Unknown: table.Ambiguous(err), Repeat: repeat, Hot: repeat && table.ForKey(err)}
	}
	return got, err
}

// updates holds updates for reuse by later writes.
var updates = sync.Pool{New: func() any { return new(expr.Update) }}

// update writes to the item, and returns it as the write left it.
func (sh *shard) update(ctx context.Context, w *plan.Write) (map[string]types.AttributeValue, error) {
	u := updates.Get().(*expr.Update)
	defer updates.Put(u)
	u.Reset()
	w.Update(u)
	if w.Creates() && sh.k == 0 {
		plan.List(u, table.IndexPartition(sh.b.key.Namespace, sh.pk.PK), table.BucketSort(sh.b.key))
	}
	if sh.key == nil {
		sh.key = sh.pk.Item()
	}
	sent := sh.s.calls.Skew.Sent()
	out, err := sh.s.cfg.Client.UpdateItem(ctx, sh.s.input(sh.key, u), table.Once...)
	if err != nil {
		return nil, err
	}
	sh.s.calls.Answered(out.ResultMetadata, sent, sh.pk)
	return out.Attributes, nil
}

// erase deletes the item, unless it belongs to a split bucket, or it lives for ever and was not seen as it is: it may
// have a balance then. Nor is it deleted if it has held slots and was not seen as it is.
func (sh *shard) erase(ctx context.Context, w *plan.Write) error {
	seen := int64(-1)
	if w.Last != nil {
		seen = w.Last.Writes
	}
	_, err := sh.s.cfg.Client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &sh.s.cfg.Table, Key: sh.pk.Item(),
		ConditionExpression: aws.String(
			"attribute_not_exists(#s) AND " +
				"(#w = :w OR attribute_not_exists(#h) AND (attribute_not_exists(#t) OR #t < :n))",
		),
		ExpressionAttributeNames: map[string]string{
			"#s": plan.AttrShards, "#t": plan.AttrTTL, "#w": plan.AttrWrites, "#h": hold.Birth,
		},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":n": table.Num(plan.Never), ":w": table.Num(seen),
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}, table.Once...)
	return err
}

// diagnose determines why DynamoDB called a write invalid. Usually, the item was edited by hand.
func (sh *shard) diagnose(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), sh.s.cfg.CallTimeout)
	defer cancel()
	var damaged *store.Error
	cause := sh.s.readItems(ctx, []table.Key{sh.pk}, make(map[table.Key]*plan.Item))
	if errors.As(cause, &damaged) && damaged.Op == "read" {
		return cause
	}
	return err
}
