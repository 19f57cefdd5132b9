// Command bench measures weir beside its peers, interleaved in one run, and judges each figure by its target.
//
// Where a peer is the target, the ratio is what counts: both were measured by turns on the same machine, so that what
// else it was doing hit both. A peer may have several rivals in a row; the target goes by the first.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/weirlimits/weir/internal/dynamotest"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	opt := options{progress: progress}
	flags.IntVar(&opt.rounds, "rounds", 9, "how often each contender runs; the median counts")
	flags.DurationVar(&opt.length, "for", 300*time.Millisecond, "how long a contender runs each time; four times as long where it waits for a disk or a network")
	flags.StringVar(&opt.dir, "dir", "", "where files are put (default a temporary directory)")
	pattern := flags.String("row", "", "run only the rows that match this regular expression")
	alone := flags.Bool("alone", false, "run weir without its peers")
	part := flags.String("part", "", "write the table as a part of docs/benchmarks.md to this file, too")
	strict := flags.Bool("strict", false, "fail when a target is missed")
	cpu := flags.String("cpuprofile", "", "write a CPU profile of all that is measured to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	selected, err := regexp.Compile(*pattern)
	if err != nil {
		return err
	}
	if *cpu != "" {
		f, err := os.Create(*cpu)
		if err != nil {
			return err
		}
		defer func() { err = firstOf(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	began := time.Now()
	var results []result
	for _, r := range rows() {
		if !selected.MatchString(r.name) {
			continue
		}
		if *alone {
			r.contenders = r.contenders[:1]
		}
		res, err := opt.measure(r)
		if errors.Is(err, dynamotest.ErrNoEngine) {
			fmt.Fprintf(progress, "%s: left out: %v\n", r.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		results = append(results, res)
	}
	about := fmt.Sprintf("%s %s/%s, %d CPUs, %d rounds of %v, interleaved; medians",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), opt.rounds, opt.length)
	fmt.Fprintf(out, "%s\n\n", about)
	missed := write(out, results)
	if *part != "" {
		var b bytes.Buffer
		writePart(&b, about+", "+began.UTC().Format("2006-01-02 15:04 UTC")+".", results)
		if err := os.WriteFile(*part, b.Bytes(), 0o644); err != nil { //nolint:gosec // a part of the docs
			return err
		}
	}
	if *strict && missed > 0 {
		return fmt.Errorf("%d targets missed", missed)
	}
	return nil
}

// rows returns all rows, in the order in which they are run and printed.
func rows() []row {
	var rs []row
	rs = append(rs, bucketRows()...)
	rs = append(rs, memoryRows()...)
	rs = append(rs, leaseRows()...)
	rs = append(rs, footprintRows()...)
	rs = append(rs, diskRows()...)
	rs = append(rs, httpRows()...)
	rs = append(rs, grpcRows()...)
	rs = append(rs, manifestRows()...)
	rs = append(rs, usageRows()...)
	rs = append(rs, dynamoRows()...)
	return rs
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
