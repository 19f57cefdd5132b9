// Command peers measures weir against its peers, in turns in one run, and tests whether each of them limits correctly.
// It writes the results, with those of cmd/bench, to docs/benchmarks.md.
//
// It judges no figure: one that is better than weir's is printed like any other. make bench-peers installs the peers
// that are not Go packages, and runs it. Peers that are not installed are left out.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"time"

	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/internal/cli"
)

func main() {
	if os.Getenv(asWeir) != "" {
		os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	if job := os.Getenv(asHolder); job != "" {
		if err := holder(context.Background(), job); err != nil {
			fmt.Fprintln(os.Stderr, "peers:", err)
			os.Exit(1)
		}
		return
	}
	if err := start(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func start(args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(progress)
	opt := harness.Options{Progress: progress}
	flags.IntVar(&opt.Rounds, "rounds", 5, "run each contender this many times; the page has the medians")
	flags.DurationVar(
		&opt.Length, "for", time.Second, "run a contender for this long each time; half as long in memory and on Redis",
	)
	flags.StringVar(&opt.Peers.Python, "python", "", "the Python interpreter that has zae-limiter")
	flags.StringVar(&opt.Peers.Script, "script", "py/zae.py", "the script that this Python runs")
	flags.StringVar(&opt.Peers.Envoy, "envoy", "", "the binary of envoyproxy/ratelimit")
	pattern := flags.String("row", "", "run only the rows and probes that match this regular expression")
	file := flags.String("o", "", "write the page to this file (default: print it)")
	own := flags.String(
		"own", "", "include this part of the page, written by cmd/bench -part; left out if the file is missing",
	)
	note := flags.String("note", "", "add this sentence about the run to the page")
	if err := flags.Parse(args); err != nil {
		return err
	}
	re, err := regexp.Compile(*pattern)
	if err != nil {
		return err
	}
	var ownPart []byte
	if *own != "" && *pattern == "" {
		if ownPart, err = os.ReadFile(*own); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	began := time.Now()
	results, err := measureAll(opt, re.MatchString)
	if err != nil {
		return err
	}
	found, err := probeAll(opt, re.MatchString)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	writePage(&b, aboutRun(context.Background(), opt, began, *note), results, string(ownPart), found)
	if *file == "" {
		_, err = out.Write(b.Bytes())
	} else {
		err = os.WriteFile(*file, b.Bytes(), 0o644) //nolint:gosec // a page of the docs
	}
	return err
}

func measureAll(o harness.Options, selected func(string) bool) (out []harness.Result, err error) {
	for _, r := range rows() {
		if !selected(r.Part + ": " + r.Name) {
			continue
		}
		res, err := o.Measure(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
		if len(res.Contenders) > 0 {
			out = append(out, res)
		}
	}
	return out, nil
}

// rows returns all rows, in the order in which they run and are printed.
func rows() []harness.Row {
	rs := shapeRows()
	rs = append(rs, redisRows()...)
	rs = append(rs, serviceRows()...)
	return append(rs, memoryRows()...)
}
