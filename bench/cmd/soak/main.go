// Command soak runs weir serve for a long time at half the rate that it reaches, for entities half of which are others
// after each tenth of the time. It fails if memory or goroutines grow, answers slow down, or more is admitted than the
// limits allow. make soak runs it for half an hour.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weirlimits/weir/bench/internal/engine"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/internal/lab/report"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store/dynamodb"
)

func main() {
	length := flag.Duration("for", 30*time.Minute, "how long, after a tenth of it to fill caches")
	binary := flag.String("weir", "../.bin/weir", "the `PATH` of the command")
	store := flag.String("store", "memory:", "what it serves from; redis and dynamodb: a server or engine of its own")
	entities := flag.Int("entities", 100_000, "who asks at a time: half by Zipf's law, half at random")
	rate := flag.Float64("rate", 0, "decisions a second; 0: half of what it reaches while its caches fill")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := harness.Options{}.With(func(e *harness.Env) error {
		address, err := begin(e, *store)
		if err != nil {
			return err
		}
		return soak(ctx, os.Stdout, *binary, address, *entities, *rate, *length)
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// begin starts what a store needs, and returns its address.
func begin(e *harness.Env, store string) (string, error) {
	switch store {
	case "redis":
		addr, err := engine.Redis(e)
		return "redis://" + addr + "?volatile=true", err
	case "dynamodb":
		table, err := engine.Create(e, dynamodb.CreateConfig{})
		if err != nil {
			return "", err
		}
		endpoint, err := dynamotest.Endpoint()
		return "dynamodb://" + table + "?region=us-east-1&endpoint=" + url.QueryEscape(endpoint), err
	}
	return store, nil
}

// parts is the number of parts of the run. One half of them is compared with the other.
const parts = 10

func soak(
	ctx context.Context, w io.Writer, binary, store string, entities int, rate float64, length time.Duration,
) (err error) {
	s, err := start(ctx, binary, store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.limit(ctx); err != nil {
		return err
	}
	d, err := dial(s.grpc, entities)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	reached, err := d.fill(ctx, length/parts)
	if err != nil {
		return err
	}
	if rate == 0 {
		rate = reached / 2
	}
	fmt.Fprintf(w, "reaches %.0f decisions/s with %d callers: soaked at %.0f/s\n", reached, callers, rate)
	fmt.Fprintf(
		w, "%8s %12s %9s %10s %8s %8s %10s\n", "time", "decisions/s", "refused", "goroutines", "RSS MB", "heap MB",
		"p99 ms",
	)
	var seen []sample
	for i := range parts {
		r, err := d.run(ctx, rate, length/parts)
		if err != nil {
			return err
		}
		at, err := s.sample(ctx)
		if err != nil {
			return err
		}
		at.p99 = time.Duration(r.Ops[0].Response.P99 * float64(time.Millisecond))
		seen = append(seen, at)
		fmt.Fprintf(w, "%8s %12.0f %8.1f%% %10.0f %8.1f %8.1f %10.2f\n", length/parts*time.Duration(i+1),
			r.Rate, report.Part(r.Refused, r.Calls),
			at.goroutines, at.resident/1e6, at.heap/1e6, at.p99.Seconds()*1e3)
	}
	return compare(middle(seen[:parts/2]), middle(seen[parts/2:]))
}

// middle returns the means of memory and goroutines, and the median of the p99.
func middle(seen []sample) (mid sample) {
	var p99 []float64
	for _, s := range seen {
		n := float64(len(seen))
		mid.resident, mid.goroutines = mid.resident+s.resident/n, mid.goroutines+s.goroutines/n
		p99 = append(p99, float64(s.p99))
	}
	mid.p99 = time.Duration(harness.Median(p99))
	return mid
}

// compare reports what has grown. It allows for what the server still caches in a short run, and for the p99 of a busy
// machine.
func compare(early, late sample) error {
	var errs []error
	if late.resident > 1.05*early.resident+8e6 {
		errs = append(errs, fmt.Errorf("memory grew from %.1f to %.1f MB", early.resident/1e6, late.resident/1e6))
	}
	if late.goroutines > early.goroutines+10 {
		errs = append(errs, fmt.Errorf("goroutines grew from %.0f to %.0f", early.goroutines, late.goroutines))
	}
	if late.p99 > early.p99*3/2+time.Millisecond {
		errs = append(errs, fmt.Errorf("the p99 went from %s to %s", early.p99, late.p99))
	}
	return errors.Join(errs...)
}
