package dynamodb_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
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
	ahead time.Duration
	ats   []time.Time // times of the updates, by their writers' clocks
	fail  bool        // conditions fail
}

func (s *server) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	time.Sleep(10 * time.Millisecond) // real time: none, all who call it are in a bubble
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
			_, rest, _ := strings.Cut(in.UpdateExpression, alias+" = ")
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

// TestSkew checks that a clock that is off by more than a second is corrected by the server's, from the first debit on.
func TestSkew(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, 700 * time.Millisecond, -700 * time.Millisecond, 10 * time.Second, -time.Hour, 3 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			srv := &server{ahead: ahead}
			s := srv.open(t)
			begun := time.Now()
			if _, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(bkt("alice"), per("rps", 1, time.Second, 1), 1)}}); err != nil {
				t.Fatal(err)
			}
			off := srv.ats[0].Sub(begun.Add(ahead))
			if ahead.Abs() < time.Second && (s.Skew() != 0 || !srv.ats[0].Equal(begun)) || off.Abs() > time.Second {
				t.Errorf("ahead %v: skew %v, the first debit was off by %v", ahead, s.Skew(), off)
			}
		})
	}
}

// TestSkewLater checks that the clock keeps being watched. If it is set right, or wrong, the next answer shows it,
// admitted or refused. Within a second, nothing moves.
func TestSkewLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := new(server)
		s := srv.open(t)
		take := func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			s.Take(ctx, store.Take{Debits: []store.Debit{of(bkt("alice"), per("rps", 1, time.Second, 1), 1)}})
			time.Sleep(time.Minute)
		}
		take()
		if s.Skew() != 0 {
			t.Errorf("%v", s.Skew())
		}
		synctest.Wait()
		srv.ahead = time.Minute
		take()
		was := s.Skew()
		if (was - time.Minute).Abs() > time.Second {
			t.Errorf("%v", was)
		}
		for range 50 { // rounding to seconds does not make it drift
			time.Sleep(137 * time.Millisecond)
			take()
			if s.Skew() != was {
				t.Fatalf("from %v to %v", was, s.Skew())
			}
		}
		synctest.Wait()
		srv.ahead, srv.fail = 0, true
		take()
		if s.Skew() != 0 {
			t.Errorf("%v after the clock was set right", s.Skew())
		}
	})
}
