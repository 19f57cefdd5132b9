package dynamodb_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// server answers as DynamoDB does, with a clock that is ahead of ours.
type server struct {
	mu    sync.Mutex
	ahead time.Duration
	ats   []time.Time // times of the updates, by their writers' clocks
	fail  bool        // conditions fail
	takes time.Duration
}

func (s *server) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	time.Sleep(cmp.Or(s.takes, 10*time.Millisecond)) // real time: none, all who call it are in a bubble
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, status := `{}`, http.StatusOK
	switch _, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); op {
	case "BatchGetItem":
		answer = `{"Responses":{"t":[{"PK":{"S":"_/SYSTEM#"},"SK":{"S":"#VERSION"},"n":{"N":"1"}}]},"UnprocessedKeys":{}}`
	case "UpdateItem":
		var in struct {
			ExpressionAttributeNames  map[string]string
			ExpressionAttributeValues map[string]struct{ N string }
			UpdateExpression          string
		}
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, err
		}
		for alias, name := range in.ExpressionAttributeNames {
			if name != "at" {
				continue
			}
			_, rest, _ := strings.Cut(in.UpdateExpression, alias+"=")
			n, err := strconv.ParseInt(in.ExpressionAttributeValues[rest[:strings.IndexAny(rest+" ", ", ")]].N, 10, 64)
			if err != nil {
				return nil, err
			}
			s.ats = append(s.ats, clock.Time(n))
		}
		answer = `{"Attributes":{"PK":{"S":"x"},"SK":{"S":"#STATE"},"id":{"N":"7"},"wc":{"N":"1"}}}`
		if s.fail {
			status, answer = http.StatusBadRequest, `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"no"}`
		}
	}
	return &http.Response{
		StatusCode: status, Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer)), Request: r,
		Header: http.Header{"Date": {time.Now().Add(s.ahead).UTC().Format(http.TimeFormat)}, "Content-Type": {"application/x-amz-json-1.0"}},
	}, nil
}

func (s *server) set(ahead time.Duration, fail bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead, s.fail = ahead, fail
}

func (s *server) updates() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ats
}

func (s *server) open(t *testing.T) *dynamodb.Store {
	t.Helper()
	client := dynamotest.Client(t, "http://dynamodb.invalid", func(o *sdk.Options) { o.HTTPClient = s })
	st, err := dynamodb.Open(t.Context(), dynamodb.Config{Client: client, Table: "t"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// TestSkew checks that a clock that differs by more than a second is corrected by the server's before the first debit.
// If it differs by more than 5 s, nothing is debited before the dates have agreed for a minute and a half.
func TestSkew(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{
		0, 700 * time.Millisecond, -700 * time.Millisecond, 4 * time.Second, -4 * time.Second, 10 * time.Second, -time.Hour, 3 * 24 * time.Hour,
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := &server{ahead: ahead}
			s := srv.open(t)
			take := func() error {
				_, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(bkt("alice"), per("rps", 1, time.Second, 1), 1)}})
				return err
			}
			if ahead.Abs() > 5*time.Second {
				begun := time.Now()
				err := take()
				var known *store.Error
				if time.Since(begun) > 0 || store.ExtentOf(err) != store.ExtentStore {
					t.Errorf("ahead %v: %v after %v", ahead, err, time.Since(begun))
				}
				writes := len(srv.updates())
				if !errors.As(err, &known) || writes > 0 ||
					!strings.Contains(err.Error(), ahead.String()) && !strings.Contains(err.Error(), "1h0m") {
					t.Errorf("ahead %v: %v, %d writes", ahead, err, writes)
				}
				time.Sleep(90 * time.Second)
			}
			begun := time.Now()
			if err := take(); err != nil {
				t.Fatal(err)
			}
			first := srv.updates()[0]
			off := first.Sub(begun.Add(ahead))
			if ahead.Abs() < time.Second && (s.Skew() != 0 || !first.Equal(begun)) || off.Abs() > time.Second {
				t.Errorf("ahead %v: skew %v, the first debit was off by %v", ahead, s.Skew(), off)
			}
		})
	}
}

// TestSkewLater checks that a single date changes nothing, and that a difference of which only the dates give evidence
// is corrected by 1 % of the time that passes, once they have agreed for long. Within a second, nothing moves.
func TestSkewLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := new(server)
		s := srv.open(t)
		take := func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			s.Take(ctx, store.Take{Debits: []store.Debit{of(bkt("alice"), per("rps", 1, time.Second, 1), 1)}})
		}
		for _, ahead := range []time.Duration{0, 900 * time.Millisecond, -time.Hour, 0} {
			srv.set(ahead, false)
			for range map[bool]int{true: 50, false: 1}[ahead.Abs() < time.Second] {
				take()
				time.Sleep(137 * time.Millisecond)
			}
			if s.Skew() != 0 {
				t.Errorf("%v ahead: %v", ahead, s.Skew())
			}
		}
		srv.set(time.Hour, true)
		for range 100 {
			take()
			time.Sleep(time.Second)
		}
		if s.Skew() != 0 {
			t.Errorf("%v by the dates of errors", s.Skew())
		}
		srv.set(4*time.Second, false)
		for last, begun := time.Duration(0), time.Now(); time.Since(begun) < 7*time.Minute; last = s.Skew() {
			take()
			time.Sleep(time.Second)
			passed := time.Since(begun)
			if most := max(0, passed-90*time.Second) / 100; s.Skew() > most || s.Skew() < last {
				t.Fatalf("%v after %v", s.Skew(), passed)
			}
		}
		if off := s.Skew() - 4*time.Second; off.Abs() > 2*time.Second {
			t.Errorf("%v after 7 minutes", s.Skew())
		}
	})
}

// TestSkewFollowsNoLongerThanTheDates checks that a process that believed dates for long gives them up within 5 s when
// they agree with the machine's clock again, also for buckets that it knows.
func TestSkewFollowsNoLongerThanTheDates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := &server{takes: 200 * time.Millisecond} // a take writes until its time is up: the answers have no levels
		s := srv.open(t)
		take := func() {
			s.Take(t.Context(), store.Take{Debits: []store.Debit{of(bkt("alice"), per("rps", 1, time.Second, 1), 1)}})
			time.Sleep(500 * time.Millisecond)
		}
		srv.set(time.Hour, false)
		for range 2 * 110 {
			take()
		}
		if off := s.Skew() - time.Hour; off.Abs() > time.Second {
			t.Fatalf("%v", s.Skew())
		}
		srv.set(0, false)
		for range 10 {
			take()
		}
		ats := srv.updates()
		if now, last := time.Now(), ats[len(ats)-1]; s.Skew() != 0 || last.After(now) {
			t.Errorf("%v, and a time %v ahead in an item", s.Skew(), last.Sub(now))
		}
	})
}
