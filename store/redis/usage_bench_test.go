package redis_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

// info returns a figure from the server's INFO.
func info(tb testing.TB, s server, section, field string) float64 {
	tb.Helper()
	for line := range strings.Lines(s.do(tb, "INFO", section)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			n, err := strconv.ParseFloat(v, 64)
			if err != nil {
				tb.Fatal(err)
			}
			return n
		}
	}
	tb.Fatalf("no %s", field)
	return 0
}

// BenchmarkUsagePass measures passes over 20,000 buckets of three limits: the first pass, one with no changes, and one
// with every bucket changed. server-us is the server's time, and B its additional memory, per bucket.
func BenchmarkUsagePass(b *testing.B) {
	const buckets = 20_000
	s := start(b)
	st := open(b, redis.Config{Address: "redis://" + s.Addr, CallTimeout: time.Minute})
	l := st.Ledger(store.Retention{})
	known(b, st, l, "n")
	spend := func() {
		var wg sync.WaitGroup
		for w := range 64 {
			wg.Go(func() {
				for i := w; i < buckets; i += 64 {
					d := one(fmt.Sprint("key-", i), still(1_000_000), 1)
					for _, name := range []string{"tpm", "rpd"} {
						d.Charges = append(d.Charges, store.Charge{Limit: &store.Limit{Name: name, Amount: 1, Period: 366 * 24 * time.Hour, Burst: 1_000_000_000}, Amount: 1000})
					}
					if out, err := st.Take(b.Context(), store.Take{Debits: []store.Debit{d}}); err != nil || !out.Allowed {
						b.Errorf("allowed %t, error %v", out.Allowed, err)
					}
				}
			})
		}
		wg.Wait()
	}
	used := func() float64 { return info(b, s, "cpu", "used_cpu_user") + info(b, s, "cpu", "used_cpu_sys") }
	measure := func(b *testing.B, before func(), booked int) {
		b.Helper()
		var cpu float64
		for range b.N {
			b.StopTimer()
			before()
			cpu -= used()
			b.StartTimer()
			if p := pass(b, l); p.Booked != booked {
				b.Fatalf("booked %d accounts, want %d", p.Booked, booked)
			}
			cpu += used()
		}
		b.ReportMetric(1e6*cpu/float64(b.N)/buckets, "server-us/bucket")
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/buckets, "us/bucket")
	}
	b.Run("first", func(b *testing.B) {
		if b.N > 1 {
			b.Skip("there is one first time")
		}
		spend()
		was := info(b, s, "memory", "used_memory")
		measure(b, func() {}, buckets)
		b.ReportMetric((info(b, s, "memory", "used_memory")-was)/buckets, "B/bucket")
	})
	b.Run("nothing-new", func(b *testing.B) { measure(b, func() {}, 0) })
	b.Run("all-new", func(b *testing.B) { measure(b, spend, buckets) })
}
