// Command growth measures how the cost of a decision grows with entities, limits, the depth of a chain, processes,
// callers and the age of a table, and draws it. It writes docs/growth.md and its pictures.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/weirlimits/weir/bench/internal/harness"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

func run(args []string, progress io.Writer) error {
	flags := flag.NewFlagSet("growth", flag.ContinueOnError)
	flags.SetOutput(progress)
	o := harness.Options{Progress: progress}
	flags.DurationVar(&o.Length, "for", time.Second, "measure each point for this long")
	pattern := flags.String("curve", "", "draw only the curves that match this regular expression, and write no page")
	most := flags.Float64("most", 1e7, "leave out points beyond this")
	note := flags.String("note", "", "add this sentence about the run to the page")
	docs := flags.String("o", "../docs", "the directory of the documents")
	if err := flags.Parse(args); err != nil {
		return err
	}
	selected, err := regexp.Compile(*pattern)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, c := range curves() {
		if !selected.MatchString(c.name) {
			continue
		}
		lines, err := c.measure(o, *most)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err := write(filepath.Join(*docs, c.picture()), c.draw(lines)); err != nil {
			return err
		}
	}
	if *pattern != "" {
		return nil
	}
	return write(filepath.Join(*docs, "growth.md"), page(began, *note))
}

func write(file string, text []byte) error {
	return os.WriteFile(file, text, 0o644) //nolint:gosec // a part of the docs
}

// line is what was measured on a store.
type line struct {
	store  string
	points []point
}

// point is what a decision costs; what is 0 was not measured, or costs nothing.
type point struct {
	x        float64
	memory   float64 // in bytes
	p50, p99 float64 // in microseconds
	calls    float64 // of the store
	money    float64 // USD for a million
}

func (c curve) measure(o harness.Options, most float64) (lines []line, err error) {
	for _, s := range c.series {
		l := line{store: s.store}
		for _, x := range s.at {
			if x > most {
				continue
			}
			fmt.Fprintf(o.Progress, "%s: %s, %g\n", c.name, s.store, x)
			var p point
			if s.store == simulated {
				p, err = c.simulate(x)
			} else {
				w := usual
				w.store = s.store
				c.set(&w, int(x))
				err = o.With(func(e *harness.Env) error {
					p, err = w.measure(e, o.Length)
					return err
				})
			}
			if harness.Absent(err) {
				fmt.Fprintf(o.Progress, "%s: %s: left out: %v\n", c.name, s.store, err)
				break
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s, %g", s.store, x), err)
			}
			p.x = x
			l.points = append(l.points, p)
		}
		lines = append(lines, l)
	}
	return lines, nil
}
