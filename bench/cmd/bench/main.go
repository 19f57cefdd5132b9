// Command bench measures weir against its peers, interleaved in one run, and compares each figure with its target.
//
// If the target is a peer, the ratio counts: both are measured in turns on the same machine, so that its other work
// affects both. If a row has several peers, the target refers to the first.
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

	"github.com/weirlimits/weir/bench/internal/harness"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command is what the flags select.
type command struct {
	harness.Options
	selected *regexp.Regexp
	alone    bool
	part     string
	strict   bool
	against  string
	cpu      string
}

func parse(args []string, progress io.Writer) (*command, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	c := &command{Options: harness.Options{Progress: progress}}
	flags.IntVar(&c.Rounds, "rounds", 9, "run each contender this many times; the table has the medians")
	flags.DurationVar(
		&c.Length, "for", 300*time.Millisecond,
		"run a contender for this long each time; four times as long if it waits for a disk or a network",
	)
	flags.StringVar(&c.Dir, "dir", "", "write files to this directory (default a temporary one)")
	pattern := flags.String("row", "", "run only the rows that match this regular expression")
	flags.BoolVar(&c.alone, "alone", false, "run weir without its peers")
	flags.StringVar(&c.part, "part", "", "also write the table to this file, as a part of docs/benchmarks.md")
	flags.BoolVar(&c.strict, "strict", false, "fail when a target is missed, or with -against a ratio is worse")
	flags.StringVar(&c.against, "against", "", "compare with this page, such as docs/benchmarks.md; print only that")
	flags.StringVar(&c.cpu, "cpuprofile", "", "write a CPU profile of the whole run to this file")
	err := flags.Parse(args)
	if err != nil {
		return nil, err
	}
	c.selected, err = regexp.Compile(*pattern)
	return c, err
}

func run(args []string, out, progress io.Writer) (err error) {
	c, err := parse(args, progress)
	if err != nil {
		return err
	}
	if c.cpu != "" {
		f, err := os.Create(c.cpu)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	began := time.Now()
	results, err := c.measureAll()
	if err != nil {
		return err
	}
	if c.against != "" {
		return c.compare(out, results)
	}
	about := fmt.Sprintf("%s %s/%s, %d CPUs, %d rounds of %v, interleaved; medians",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), c.Rounds, c.Length)
	fmt.Fprintf(out, "%s\n\n", about)
	missed := write(out, results)
	if c.part != "" {
		var b bytes.Buffer
		writePart(&b, about+", "+began.UTC().Format("2006-01-02 15:04 UTC")+".", results)
		if err := os.WriteFile(c.part, b.Bytes(), 0o644); err != nil { //nolint:gosec // a part of the docs
			return err
		}
	}
	if c.strict && missed > 0 {
		return fmt.Errorf("%d targets missed", missed)
	}
	return nil
}

// compare compares the results with a page.
func (c *command) compare(out io.Writer, results []result) error {
	page, err := os.Open(c.against)
	if err != nil {
		return err
	}
	defer page.Close()
	was, err := ratios(page)
	if err != nil {
		return err
	}
	if worse := compare(out, results, was); c.strict && worse > 0 {
		return fmt.Errorf("%d ratios are worse", worse)
	}
	return nil
}

// measureAll measures the selected rows. Rows without their engine are left out.
func (c *command) measureAll() (results []result, err error) {
	for _, r := range rows() {
		if !c.selected.MatchString(r.name) {
			continue
		}
		if c.alone {
			r.contenders = r.contenders[:1]
		}
		res, err := c.Measure(r.measured())
		if harness.Absent(err) {
			fmt.Fprintf(c.Progress, "%s: left out: %v\n", r.name, err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		if len(res.Contenders) > 0 {
			results = append(results, result{r, res})
		}
	}
	return results, nil
}

// rows returns all rows, in the order in which they run and are printed.
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
