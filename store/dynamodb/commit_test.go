package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

func cancelled(codes ...string) error {
	e := &types.TransactionCanceledException{Message: aws.String("cancelled")}
	for _, c := range codes {
		e.CancellationReasons = append(e.CancellationReasons, types.CancellationReason{Code: aws.String(c)})
	}
	return e
}

// TestCommitAnswerLost checks that a commit that was applied but not answered is not taken for another client's.
func TestCommitAnswerLost(t *testing.T) {
	t.Parallel()
	for _, lost := range []error{&types.InternalServerError{}, context.DeadlineExceeded, errors.New("connection reset by peer")} {
		d := newDesk(t)
		var tokens []string
		d.spy.commit = func(ctx context.Context, in *sdk.TransactWriteItemsInput) (*sdk.TransactWriteItemsOutput, error) {
			tokens = append(tokens, aws.ToString(in.ClientRequestToken))
			out, err := d.client.TransactWriteItems(ctx, in)
			if err == nil && len(tokens) < 3 {
				return nil, lost
			}
			return out, err
		}
		if err := d.Commit(t.Context(), put(entity("a"), 0, "x"), put(entity("b"), 0, "y")); err != nil {
			t.Errorf("after %v: %v", lost, err)
		}
		if len(tokens) != 3 || tokens[0] == "" || tokens[0] != tokens[1] || tokens[1] != tokens[2] {
			t.Errorf("tokens %q", tokens)
		}
		d.want(t, entity("a"), 1, "x")
		if got, err := d.Get(t.Context(), entity("b")); err != nil || got.Epoch != 1 || got.Records[0].Version != 1 {
			t.Errorf("after %v: %+v, %v", lost, got, err)
		}
		if err := d.Commit(t.Context(), put(entity("a"), 1, "z")); err != nil || tokens[3] == tokens[0] {
			t.Errorf("the next commit: %v, tokens %q", err, tokens)
		}
	}
}

// TestCommitOutcomeUnknown checks that a commit that may have been applied counts as ours, if it was never answered.
func TestCommitOutcomeUnknown(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.want(t, entity("a"), 0, "")
	ctx, cancel := context.WithCancel(t.Context())
	d.spy.commit = func(c context.Context, in *sdk.TransactWriteItemsInput) (*sdk.TransactWriteItemsOutput, error) {
		if _, err := d.client.TransactWriteItems(t.Context(), in); err != nil {
			t.Error(err)
		}
		cancel()
		return nil, c.Err()
	}
	if err := d.Commit(ctx, put(entity("a"), 0, "x")); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if got, err := d.Get(t.Context(), entity("a")); err != nil || got.Epoch != 1 || got.Records[0].Version != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestCommitRetries checks that a commit is repeated after temporary errors.
func TestCommitRetries(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.spy.commit = func(ctx context.Context, in *sdk.TransactWriteItemsInput) (*sdk.TransactWriteItemsOutput, error) {
		switch d.spy.commits.Load() {
		case 1:
			return nil, cancelled("None", "TransactionConflict")
		case 2:
			return nil, cancelled("ThrottlingError", "None")
		case 3:
			return nil, &types.ThrottlingException{}
		case 4:
			return nil, &types.TransactionInProgressException{}
		case 5:
			return nil, cancelled("ProvisionedThroughputExceeded", "TransactionConflict")
		}
		return d.client.TransactWriteItems(ctx, in)
	}
	if err := d.Commit(t.Context(), put(entity("a"), 0, "x")); err != nil || d.spy.commits.Load() != 6 {
		t.Errorf("error %v after %d tries, want none after 6", err, d.spy.commits.Load())
	}
}

// TestCommitConflictFirst checks that a version conflict is reported, whatever other reasons there are.
func TestCommitConflictFirst(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if err := d.Commit(t.Context(), put(entity("b"), 0, "x")); err != nil {
		t.Fatal(err)
	}
	d.spy.commit = func(ctx context.Context, in *sdk.TransactWriteItemsInput) (*sdk.TransactWriteItemsOutput, error) {
		out, err := d.client.TransactWriteItems(ctx, in)
		if c, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
			c.CancellationReasons[0] = types.CancellationReason{Code: aws.String("TransactionConflict")}
		}
		return out, err
	}
	err := d.Commit(t.Context(), put(entity("a"), 0, "x"), put(entity("b"), 4, "y"))
	if c, ok := errors.AsType[*store.ConflictError](err); !ok || c.Key != entity("b") || c.Have != 1 || c.Want != 4 {
		t.Errorf("error %v", err)
	}
	if n := d.spy.commits.Load(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

// TestCommitGivesUp checks that a commit gives up within the caller's time, or within one of its own.
func TestCommitGivesUp(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]error{
		"conflict": cancelled("TransactionConflict"), "throttle": &types.ThrottlingException{}, "trouble": &types.InternalServerError{},
	} {
		for _, limit := range []time.Duration{0, 300 * time.Millisecond} {
			t.Run(fmt.Sprint(name, limit), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					sp := &spy{commit: func(context.Context, *sdk.TransactWriteItemsInput) (*sdk.TransactWriteItemsOutput, error) {
						return nil, fails
					}}
					s := newCatalog(t, sp, "t")
					ctx, most := t.Context(), 10*time.Second
					if limit > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, limit)
						defer cancel()
						most = limit
					}
					began := time.Now()
					err := s.Commit(ctx, put(entity("a"), 0, "x"))
					if known, ok := errors.AsType[*store.Error](err); !ok || known.Hint == "" || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, fails) || errors.Is(err, store.ErrConflict) {
						t.Errorf("error %v", err)
					}
					if took := time.Since(began); took > most || took < most/2 {
						t.Errorf("gave up after %v, want %v", took, most)
					}
					if n := sp.commits.Load(); n < 3 || n > 300 {
						t.Errorf("%d tries", n)
					}
				})
			})
		}
	}
}

// TestHungCall checks that a call without an answer does not block a commit forever.
func TestHungCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := &spy{commit: func(ctx context.Context, _ *sdk.TransactWriteItemsInput) (*sdk.TransactWriteItemsOutput, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		sp.get = func(ctx context.Context, _ *sdk.BatchGetItemInput) (*sdk.BatchGetItemOutput, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		s := newCatalog(t, sp, "t")
		began := time.Now()
		if err := s.Commit(t.Context(), put(entity("a"), 0, "x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if _, err := s.Get(t.Context(), entity("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("both took %v", took)
		}
		if n := sp.commits.Load(); n < 2 {
			t.Errorf("%d tries: one call had all the time there was", n)
		}
	})
}

// TestCommitDenied checks that permanent errors are not retried.
func TestCommitDenied(t *testing.T) {
	t.Parallel()
	sp := &spy{commit: func(context.Context, *sdk.TransactWriteItemsInput) (*sdk.TransactWriteItemsOutput, error) {
		return nil, cancelled("None", "ValidationError")
	}}
	s := newCatalog(t, sp, "t")
	err := s.Commit(t.Context(), put(entity("a"), 0, "x"))
	if known, ok := errors.AsType[*store.Error](err); !ok || known.Op != "commit" || sp.commits.Load() != 1 {
		t.Errorf("error %v after %d tries", err, sp.commits.Load())
	}
}

// TestCommitBounds checks that commits that DynamoDB cannot accept are refused before any call.
func TestCommitBounds(t *testing.T) {
	t.Parallel()
	s := newCatalog(t, &spy{}, "t") // any call would panic
	large := make([]byte, store.MaxValue)
	var big, wide []store.Write
	for i := range 17 {
		big = append(big, store.Write{Record: store.Record{Key: entity(fmt.Sprint(i)), Value: large}})
	}
	for i := range store.MaxWrites {
		k := entity(fmt.Sprint(i))
		k.Namespace = fmt.Sprint("n", i%5)
		wide = append(wide, put(k, 0, ""))
	}
	var known *store.Error
	var bound *store.BoundError
	if err := s.Commit(t.Context(), big...); !errors.As(err, &bound) || bound.Max != store.MaxCommit {
		t.Errorf("of more than 4 MB: error %v", err)
	}
	if err := s.Commit(t.Context(), wide...); !errors.As(err, &bound) || bound.Max != 100 || bound.Have != 101 {
		t.Errorf("of 96 writes in 5 namespaces: error %v", err)
	}
	bad := entity("a\xff")
	_, errGet := s.Get(t.Context(), bad)
	_, errList := s.List(t.Context(), store.Query{Namespace: "n", Kind: store.KindEntity, ID: bad.ID})
	for op, err := range map[string]error{"commit": s.Commit(t.Context(), put(bad, 0, "")), "get": errGet, "list": errList} {
		if !errors.As(err, &known) || known.Op != op || !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s of an id that is no text: error %v", op, err)
		}
	}
}

// TestCommitLargest checks that the largest commit that fits is accepted.
func TestCommitLargest(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var writes []store.Write
	for i := range store.MaxCommit / store.MaxValue {
		writes = append(writes, store.Write{Record: store.Record{Key: entity(fmt.Sprint(i)), Value: make([]byte, store.MaxValue)}})
	}
	if err := d.Commit(t.Context(), writes...); err != nil {
		t.Fatal(err)
	}
	writes = nil
	for i := range store.MaxWrites {
		k := entity(fmt.Sprint(i))
		k.Namespace = fmt.Sprint("n", i%4)
		writes = append(writes, put(k, 0, "x"))
	}
	if err := d.Commit(t.Context(), writes...); err != nil {
		t.Errorf("96 writes in 4 namespaces: %v", err)
	}
}

// TestDeleteMissing checks that deleting a record that must not exist fails even if it does not exist.
func TestDeleteMissing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if err := d.Commit(t.Context(), put(entity("a"), 0, "x")); err != nil {
		t.Fatal(err)
	}
	for _, k := range []store.Key{entity("a"), entity("none")} {
		err := d.Commit(t.Context(), store.Write{Record: store.Record{Key: k}, Delete: true}, put(entity("b"), 0, "x"))
		want := map[string]uint64{"a": 1}[k.ID]
		if c, ok := errors.AsType[*store.ConflictError](err); !ok || c.Key != k || c.Have != want || c.Want != 0 {
			t.Errorf("delete %v: %v, want a conflict with version %d", k, err, want)
		}
	}
	d.want(t, entity("a"), 1, "x")
	d.want(t, entity("b"), 0, "")
}
