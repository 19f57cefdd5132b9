package load_test

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/lab/load"
	"github.com/weirlimits/weir/internal/lab/traffic"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/internal/testkit/traffictest"
)

// afterEpoch lets time pass in a bubble: clocks before the epoch would be far behind.
func afterEpoch() { pass(time.Until(clock.Epoch) + time.Hour) }

// TestSlots checks that 64 users who wait for 8 slots keep them busy, through each target, and that none is refused.
func TestSlots(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]func(t *testing.T, p *traffic.Plan) load.Target{
		"library": func(t *testing.T, p *traffic.Plan) load.Target {
			t.Helper()
			lim, _ := limiter(t, new(load.Meter))
			must(t, load.SetUp(t.Context(), p, lim, "scratch"))
			return load.Library{Limiter: lim.In("scratch")}
		},
		"http": func(t *testing.T, p *traffic.Plan) load.Target {
			t.Helper()
			_, h := served(t)
			target, err := load.NewHTTP("http://weir.example/", "", nil)
			must(t, err)
			target.Through(direct{h})
			must(t, target.SetUp(t.Context(), p, "scratch"))
			return target.In("scratch")
		},
		"grpc": func(t *testing.T, p *traffic.Plan) load.Target {
			t.Helper()
			lim, _ := limiter(t, new(load.Meter))
			must(t, load.SetUp(t.Context(), p, lim, "scratch"))
			return overGRPC(t, lim, "scratch", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				afterEpoch()
				p := traffictest.Plan(t, traffictest.Named(t, "slots"), traffic.Settings{Seed: 1, For: traffic.Span(time.Minute)})
				r := run(t, p, target(t, p))
				if s := r.Slots; s == nil || s.Of != 8 || s.Most != 8 || s.Busy < 97 || s.Busy > 100 {
					t.Fatalf("%+v", s)
				}
				if r.Refused > 0 || r.Failed > 0 || r.Ops[1].Op != traffic.Commit || r.Ops[1].Calls != r.Calls {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// overGRPC returns a target that calls a limiter over gRPC.
func overGRPC(t *testing.T, lim *weir.Limiter, namespace, token string) *load.GRPC {
	t.Helper()
	s, err := grpcapi.New(grpcapi.Config{Config: decide.Config{Limiter: lim}})
	must(t, err)
	ln := bufconn.Listen(256 << 10)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	end := make(chan error, 1)
	go func() { end <- s.Serve(ctx, ln) }()
	dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) })
	target, err := load.DialGRPC("passthrough:///weir", namespace, token, nil, dial)
	must(t, err)
	t.Cleanup(func() {
		must(t, target.Close())
		stop()
		must(t, <-end)
	})
	return target
}

// TestSlotsRefused checks that users who do not wait are refused, and that a call that held slots can be adjusted.
func TestSlotsRefused(t *testing.T) {
	t.Parallel()
	sc, err := traffic.Decode("short", []byte(`
loop: closed
users: 20
wait: 0.1s
entities: [{name: key, id: "key-%d", count: 2, share: 1}]
resources: [api]
calls:
  - {name: work, op: acquire, weight: 1, tokens: {parallel: 2, tpm: 10}, adjust: {tpm: 5..15}, hold: 0.2s}
limits: {system: {limits: {parallel: 6slots, tpm: {capacity: 1M}}}}
`))
	must(t, err)
	synctest.Test(t, func(t *testing.T) {
		afterEpoch()
		_, h := served(t)
		target, err := load.NewHTTP("http://weir.example/", "", nil)
		must(t, err)
		target.Through(direct{h})
		p := traffictest.Plan(t, sc, traffic.Settings{Seed: 1, For: traffic.Span(10 * time.Second)})
		must(t, target.SetUp(t.Context(), p, "scratch"))
		r := run(t, p, target.In("scratch"))
		if s := r.Slots; s == nil || s.Of != 6 || s.Most != 6 || s.Busy < 50 || s.Busy > 100 {
			t.Fatalf("%+v", s)
		}
		if r.Refused == 0 || r.Failed > 0 || len(r.Ops) != 3 || r.Ops[2].Calls != r.Calls-r.Refused {
			t.Errorf("%+v", r)
		}
	})
}

// grants is a target that admits everything, whatever its limit.
type grants struct{ load.Nothing }

func (grants) Acquire(context.Context, *traffic.Call) (load.Held, error) { return grants{}, nil }

func (grants) Slots() load.Slots { return load.Slots{Held: 1, Of: 8} }

// TestSlotsExceeded checks that a report shows that more slots were held than the limit allows.
func TestSlotsExceeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := traffictest.Plan(t, traffictest.Named(t, "slots"), traffic.Settings{Seed: 1, Users: 9, For: traffic.Span(time.Minute)})
		r := run(t, p, grants{})
		if s := r.Slots; s == nil || s.Most != 9 || s.Busy < 112.4 || s.Busy > 112.5 {
			t.Fatalf("%+v", s)
		}
		if page := string(load.Page(r, nil)); !strings.Contains(page, "9 slots were held at once, of 8") {
			t.Error(page)
		}
		if c := load.Compare(r, r); c.Changes[3].What != "slots busy" || c.Changes[3].A != r.Slots.Busy {
			t.Errorf("%+v", c.Changes)
		}
	})
}

// TestSlotsMerged checks that what two workers report adds up.
func TestSlotsMerged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := traffictest.Plan(t, traffictest.Named(t, "slots"), traffic.Settings{Seed: 1, Users: 9, For: traffic.Span(time.Minute)})
		var parts []*load.Tally
		for i := range 2 { // of five users and of four
			part, err := load.Run(t.Context(), p, grants{}, load.Options{Part: i, Parts: 2})
			must(t, err)
			text, err := json.Marshal(part)
			must(t, err)
			parts = append(parts, new(load.Tally))
			must(t, json.Unmarshal(text, parts[i]))
		}
		if s := load.NewReport(p, load.Merged(p, parts...)).Slots; s == nil || s.Of != 8 || s.Most != 5 || s.Busy < 112.4 || s.Busy > 112.5 {
			t.Errorf("%+v", s)
		}
	})
}
