package stream_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/store"
)

// The lag is the age of what no reader has counted, and not that of what needs no counting.
func TestLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		st := open(t, l.fake, time.Now)
		lag := func() (time.Duration, bool) {
			t.Helper()
			r := &stream.Reader{Config: stream.Config{Store: st}, Streams: l, ARN: "arn"}
			got, read, err := r.Lag(t.Context(), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			return got, read
		}
		take := func() {
			t.Helper()
			limit := &store.Limit{Name: "tpm", Amount: 1e6, Period: time.Minute, Burst: 1e6}
			bucket := store.Bucket{Namespace: "n", Entity: "alice", Resource: "api"}
			if _, err := st.Take(t.Context(), store.Take{Debits: []store.Debit{{Bucket: bucket, Charges: []store.Charge{{Limit: limit, Amount: 10}}}}}); err != nil {
				t.Fatal(err)
			}
		}
		take()
		if _, read := lag(); read {
			t.Error("read, before there was a reader")
		}
		end := l.run(t, st)
		time.Sleep(time.Minute)
		if got, read := lag(); got != 0 || !read {
			t.Errorf("%v, %t with a reader, want 0", got, read)
		}
		end()
		time.Sleep(time.Minute)
		if got, _ := lag(); got != 0 {
			t.Errorf("%v where nothing was taken, want 0", got)
		}
		take()
		time.Sleep(time.Hour)
		take()
		if got, _ := lag(); got != time.Hour {
			t.Errorf("%v without a reader, want an hour", got)
		}
		defer l.run(t, st)()
		time.Sleep(time.Minute)
		if got, _ := lag(); got != 0 {
			t.Errorf("%v after a reader is back, want 0", got)
		}
	})
}
