// Command soak runs weir serve for a long time at half the rate that it reaches, and fails if memory or goroutines
// grow, or answers slow down. make soak runs it for half an hour.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weirlimits/weir/internal/lab/report"
)

func main() {
	length := flag.Duration("for", 30*time.Minute, "how long")
	binary := flag.String("weir", "../.bin/weir", "the `PATH` of the command")
	store := flag.String("store", "memory:", "what it serves from")
	entities := flag.Int("entities", 10_000, "who asks, by Zipf's law")
	rate := flag.Float64("rate", 0, "decisions a second; 0: half of what it reaches in 10 s")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := soak(ctx, os.Stdout, *binary, *store, *entities, *rate, *length)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// parts is the number of parts of the run: the first is for warming up, and the last is compared with the second.
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
	if rate == 0 {
		reached, err := d.run(ctx, 0, min(10*time.Second, length/10))
		if err != nil {
			return err
		}
		rate = reached.Rate / 2
		fmt.Fprintf(w, "reaches %.0f decisions/s with %d callers: soaked at %.0f/s\n", reached.Rate, callers, rate)
	}
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
	return compare(seen[1], seen[parts-1])
}

// compare reports what has grown. It allows for the heap varying between collections, and for the p99 of a busy
// machine.
func compare(early, late sample) error {
	var errs []error
	if late.resident > 1.1*early.resident+8e6 {
		errs = append(errs, fmt.Errorf("memory grew from %.1f to %.1f MB", early.resident/1e6, late.resident/1e6))
	}
	if late.goroutines > early.goroutines+10 {
		errs = append(errs, fmt.Errorf("goroutines grew from %.0f to %.0f", early.goroutines, late.goroutines))
	}
	if late.p99 > 2*early.p99+time.Millisecond {
		errs = append(errs, fmt.Errorf("the p99 went from %s to %s", early.p99, late.p99))
	}
	return errors.Join(errs...)
}
