// Command peers measures weir beside its peers, by turns in one run, asks of all of them whether they limit, and writes
// what it saw as docs/benchmarks.md, with what cmd/bench has measured, and a part of that into README.
//
// It judges no figure: a peer's that is better is printed like any other. make bench-peers installs the peers that are
// not Go packages and runs it; those that are not there are left out.
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

	"github.com/weirlimits/weir/bench/internal/readme"
	"github.com/weirlimits/weir/internal/cli"
)

func main() {
	if os.Getenv(asWeir) != "" {
		os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	if err := start(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func start(args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(progress)
	opt := options{progress: progress}
	flags.IntVar(&opt.rounds, "rounds", 5, "how often each contender runs; medians count")
	flags.DurationVar(&opt.length, "for", time.Second, "how long a contender runs each time; half as long in memory and on Redis")
	flags.StringVar(&opt.peers.python, "python", "", "a Python with zae-limiter")
	flags.StringVar(&opt.peers.script, "script", "py/zae.py", "what that Python runs")
	flags.StringVar(&opt.peers.envoy, "envoy", "", "envoyproxy/ratelimit's binary")
	pattern := flags.String("row", "", "run only the rows and probes that match this regular expression")
	file := flags.String("o", "", "write the page to this file (default: print it)")
	own := flags.String("own", "", "the part of the page that cmd/bench -part has written; left out if it is not there")
	from := flags.String("from", "", "measure nothing, and take this page as it is")
	show := flags.String("readme", "", "put what README shows of the page into this file, unless -row leaves rows out")
	note := flags.String("note", "", "a sentence about the run, for the page")
	if err := flags.Parse(args); err != nil {
		return err
	}
	re, err := regexp.Compile(*pattern)
	if err != nil {
		return err
	}
	if *from != "" {
		text, err := os.ReadFile(*from)
		if err != nil {
			return err
		}
		return tell(*show, text)
	}
	var ownPart []byte
	if *own != "" && *pattern == "" {
		if ownPart, err = os.ReadFile(*own); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	began := time.Now()
	results, err := opt.measureAll(re.MatchString)
	if err != nil {
		return err
	}
	found, err := opt.probeAll(re.MatchString)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	writePage(&b, opt.about(context.Background(), began, *note), results, string(ownPart), found)
	if *file == "" {
		_, err = out.Write(b.Bytes())
	} else {
		err = os.WriteFile(*file, b.Bytes(), 0o644) //nolint:gosec // a page of the docs
	}
	if err != nil || *pattern != "" {
		return err
	}
	return tell(*show, b.Bytes())
}

// tell puts what README shows of the page into it.
func tell(file string, page []byte) error {
	if file == "" {
		return nil
	}
	table, err := readme.Table(page)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if text, err = readme.Replace(text, table); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644) //nolint:gosec // a page of the docs
}

func (o options) measureAll(selected func(string) bool) (out []result, err error) {
	for _, r := range rows() {
		if !selected(r.part + ": " + r.name) {
			continue
		}
		res, err := o.measure(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		if len(res.contenders) > 0 {
			out = append(out, res)
		}
	}
	return out, nil
}

// rows returns all rows, in the order in which they are run and printed.
func rows() []row {
	rs := shapeRows()
	rs = append(rs, redisRows()...)
	rs = append(rs, serviceRows()...)
	return append(rs, memoryRows()...)
}
