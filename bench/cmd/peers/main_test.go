package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/internal/cli"
)

func TestMain(m *testing.M) {
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
	os.Exit(m.Run())
}

// brief runs the contenders that are linked in, for a moment. zae-limiter and envoyproxy/ratelimit run only in make
// bench-peers.
var brief = harness.Options{Rounds: 1, Length: 20 * time.Millisecond, Quick: true, Progress: io.Discard}

// TestRows runs each row for a moment, to check that it still works.
func TestRows(t *testing.T) {
	t.Parallel()
	for _, r := range rows() {
		t.Run(r.Part+": "+r.Name, func(t *testing.T) {
			t.Parallel()
			res, err := brief.Measure(r)
			if err != nil {
				t.Fatal(err)
			}
			if len(res.Contenders) == 0 {
				t.Skip("no contender is installed")
			}
			for i, c := range res.Contenders {
				s := res.Samples[i]
				if len(s) != 1 || s[0].Rate <= 0 || s[0].CPU < 0 {
					t.Errorf("%s: %+v", c.Name, s)
				}
				if s[0].Failed > 0 && strings.HasPrefix(c.Name, "weir") {
					t.Errorf("%s: %d of %d failed", c.Name, s[0].Failed, s[0].Ops)
				}
			}
		})
	}
}

// TestProbes runs a small version of each probe, and expects weir to be correct.
func TestProbes(t *testing.T) {
	t.Parallel()
	for _, p := range probes() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range p.subjects {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					f, err := find(brief, s)
					if harness.Absent(err) {
						t.Skip(err)
					}
					if err != nil {
						t.Fatal(err)
					}
					if strings.HasPrefix(s.name, "weir") && !f.right {
						t.Error(f.saw)
					}
				})
			}
		})
	}
}

// TestProbesNotice checks that the probes notice limiters that are wrong.
func TestProbesNotice(t *testing.T) {
	t.Parallel()
	always := func(context.Context, string) (bool, error) { return true, nil }
	e := &harness.Env{Ctx: t.Context(), Quick: true}
	if got := race(e, many(4, always), 40); got.Admitted != 40 {
		t.Errorf("a race that admits all: %+v", got)
	}
	fixed := make([]span, 0, 200) // 100 at the end of a window, 100 at the start of the next
	for i := range 200 {
		at := 900*time.Millisecond + time.Duration(i)*time.Millisecond
		fixed = append(fixed, span{at, at + time.Millisecond})
	}
	if n := most(fixed); n != 200 {
		t.Errorf("%d in one second, want 200", n)
	}
	slow := []span{{0, time.Millisecond}, {999 * time.Millisecond, 1001 * time.Millisecond}}
	if n := most(slow); n != 1 {
		t.Errorf("%d are certain to be within one second, want 1", n)
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	res := harness.Result{
		Row: harness.Row{Part: partLatency, Name: "acquire", Contenders: []harness.Contender{{Name: "weir"}, {Name: "peer"}}},
		// 2, 2 and 1/2 times the peer's figure of the same round; the ratio of the medians would be 1.
		Samples: [][]harness.Sample{
			{{Rate: 200, CPU: 1e5, Ops: 1}, {Rate: 400, CPU: 1e5, Ops: 1}, {Rate: 100, CPU: 1e5, Ops: 1}},
			{{Rate: 100, CPU: 2e6, Calls: 1, Ops: 1, Failed: 1, P99: 1500}, {Rate: 200, CPU: 2e6, Calls: 1, Ops: 1}, {Rate: 200, CPU: 2e6, Calls: 1, Ops: 2}},
		},
	}
	p := probed{probe{"Over", "Ask.", []subject{{name: "weir"}, {name: "peer"}}}, []finding{{"10 admitted", true}, {"20 admitted", false}}}
	var b bytes.Buffer
	writePage(&b, about{note: "It was busy."}, []harness.Result{res}, "\n## By itself\n", []probed{p})
	for _, want := range []string{
		"| acquire | weir | 200/s | 100–400 |", "| 100 µs |",
		"| 25.0 % | 2.00 × | 0.050 × |", "| 2,000 µs | 1.00 |",
		"| weir | 10 admitted |", "| peer | **20 admitted** |", "| note | It was busy. |",
		"\n\n## By itself\n\n## Correctness\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}
