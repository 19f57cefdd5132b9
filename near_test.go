package weir_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// nearLog records the near-limit events that an observer receives.
type nearLog struct {
	mu     sync.Mutex
	events []weir.NearLimitEvent
}

func (n *nearLog) observe(cfg *weir.Config) {
	cfg.Observer = &weir.Observer{NearLimit: func(_ context.Context, e weir.NearLimitEvent) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.events = append(n.events, e)
	}}
}

// drain returns the events since the last call, in a short form.
func (n *nearLog) drain() (texts []string) {
	for _, e := range n.take() {
		var marks string
		if e.Shadow {
			marks += " shadow"
		}
		if e.Override {
			marks += " override"
		}
		texts = append(texts, fmt.Sprintf("%s %s %s %s%s %d%% %d/%d %s+%s", e.Entity, e.Resource, e.Limit, e.Kind, marks,
			e.Percent, e.Used, e.Of, e.WindowStart.UTC().Format("15:04"), e.WindowLength))
	}
	return texts
}

func (n *nearLog) take() []weir.NearLimitEvent {
	n.mu.Lock()
	defer n.mu.Unlock()
	events := n.events
	n.events = nil
	return events
}

func (n *nearLog) want(t *testing.T, after string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, n.drain()); diff != "" {
		t.Errorf("after %s:\n%s", after, diff)
	}
}

func TestNearLimit(t *testing.T) {
	t.Parallel()
	var near nearLog
	b := setup(t, near.observe)
	b.set("", "", weir.PerHour("tpm", 100))
	b.take("alice", weir.Tokens{"tpm": 79})
	near.want(t, "79")
	b.take("alice", weir.Tokens{"tpm": 1})
	near.want(t, "80", "alice api tpm threshold 80% 80/100 12:00+1h0m0s")
	b.take("alice", weir.Tokens{"tpm": 1})
	near.want(t, "81")
	b.refused("alice", weir.Tokens{"tpm": 20})
	near.want(t, "a refusal", "alice api tpm refused 81% 81/100 12:00+1h0m0s")
	b.take("alice", weir.Tokens{"tpm": 19})
	b.refused("alice", weir.Tokens{"tpm": 20})
	near.want(t, "all at once",
		"alice api tpm threshold 95% 100/100 12:00+1h0m0s", "alice api tpm threshold 100% 100/100 12:00+1h0m0s")

	// Usage falls and reaches the threshold again in the same window.
	b.clock.advance(30 * time.Minute)
	b.take("alice", weir.Tokens{"tpm": 1})
	b.take("alice", weir.Tokens{"tpm": 45})
	near.want(t, "the same window")

	// In a later window: usage has not fallen below 80 and 95 before, only below 100.
	b.clock.advance(27 * time.Minute)
	b.take("alice", weir.Tokens{"tpm": 49})
	b.clock.advance(3 * time.Minute)
	b.take("alice", weir.Tokens{"tpm": 2})
	near.want(t, "a later window, without a fall under 95")
	b.take("alice", weir.Tokens{"tpm": 3})
	near.want(t, "a fall under 100 only", "alice api tpm threshold 100% 100/100 13:00+1h0m0s")
}

// A fall counts only in a later window, even if no call has observed it.
func TestNearLimitArmedAgain(t *testing.T) {
	t.Parallel()
	var near nearLog
	b := setup(t, near.observe)
	b.set("", "", weir.PerHour("tpm", 100))
	must(t, b.admin.Limits.SetNearLimit(b.ctx, admin.Thresholds{50}))
	b.take("alice", weir.Tokens{"tpm": 60})
	near.want(t, "60", "alice api tpm threshold 50% 60/100 12:00+1h0m0s")
	b.clock.advance(59 * time.Minute)
	b.take("alice", weir.Tokens{"tpm": 79}) // 1 was still used
	near.want(t, "a fall in the same window")
	b.clock.advance(2 * time.Minute)
	b.take("alice", weir.Tokens{"tpm": 0}) // 76.7 used: no fall within this window
	near.want(t, "a later window without a fall")
	b.clock.advance(58 * time.Minute)
	b.take("alice", weir.Tokens{"tpm": 60}) // 18.3 were used, which no call has observed
	near.want(t, "a fall that nobody has seen", "alice api tpm threshold 50% 60/100 13:00+1h0m0s")
	b.clock.advance(3 * time.Hour)
	b.take("alice", weir.Tokens{"tpm": 1})
	b.take("alice", weir.Tokens{"tpm": 49})
	near.want(t, "a fall", "alice api tpm threshold 50% 50/100 16:00+1h0m0s")
}

// A limit whose period was lengthened is reported in its first window too, although that window began before the last report.
func TestNearLimitPeriodChanged(t *testing.T) {
	t.Parallel()
	var near nearLog
	b := setup(t, near.observe)
	b.set("", "", weir.PerMinute("tpm", 100))
	must(t, b.admin.Limits.SetNearLimit(b.ctx, admin.Thresholds{50}))
	b.take("alice", weir.Tokens{"tpm": 60})
	near.want(t, "a minute's", "alice api tpm threshold 50% 60/100 12:00+1m0s")
	b.clock.advance(10 * time.Minute)
	b.set("", "", weir.PerDay("tpm", 100))
	b.take("alice", weir.Tokens{"tpm": 60})
	near.want(t, "a day's", "alice api tpm threshold 50% 60/100 00:00+24h0m0s")
}

func TestNearLimitRefusedHourly(t *testing.T) {
	t.Parallel()
	var near nearLog
	b := setup(t, near.observe)
	b.set("", "", weir.PerDay("rpd", 10), weir.PerSecond("rps", 1))
	must(t, b.admin.Limits.SetNearLimit(b.ctx, admin.Thresholds{}))
	b.clock.advance(59 * time.Minute)
	b.take("alice", weir.Tokens{"rpd": 10, "rps": 1})
	for range 3 {
		b.refused("alice", weir.Tokens{"rpd": 5, "rps": 1})
	}
	near.want(t, "refusals by both limits",
		"alice api rpd refused 100% 10/10 12:00+1h0m0s", "alice api rps refused 100% 1/1 12:00+1h0m0s")
	b.clock.advance(time.Minute)
	b.refused("alice", weir.Tokens{"rpd": 5, "rps": 1})
	near.want(t, "another hour", "alice api rpd refused 99% 10/10 13:00+1h0m0s")
}

func TestNearLimitWindowOfAMinute(t *testing.T) {
	t.Parallel()
	var near nearLog
	b := setup(t, near.observe)
	b.set("", "", weir.PerSecond("rps", 10))
	must(t, b.admin.Limits.SetNearLimit(b.ctx, admin.Thresholds{100}))
	for range 5 {
		b.take("alice", weir.Tokens{"rps": 10})
		b.clock.advance(2 * time.Second)
	}
	near.want(t, "some seconds", "alice api rps threshold 100% 10/10 12:00+1m0s")
	b.clock.advance(time.Minute)
	b.take("alice", weir.Tokens{"rps": 10})
	near.want(t, "the next minute", "alice api rps threshold 100% 10/10 12:01+1m0s")
}

// The parent's limits count for all its children together, and the event names the parent.
func TestNearLimitParent(t *testing.T) {
	t.Parallel()
	var near nearLog
	b := setup(t, near.observe)
	b.chain("child", "parent")
	b.child("other", "parent")
	b.set("", "", weir.PerHour("tpm", 100))
	b.set("parent", "api", weir.PerHour("tpm", 150))
	b.take("child", weir.Tokens{"tpm": 70})
	b.take("other", weir.Tokens{"tpm": 60})
	near.want(t, "both children", "parent api tpm threshold 80% 130/150 12:00+1h0m0s")
	b.refused("child", weir.Tokens{"tpm": 30})
	near.want(t, "a refusal of the parent's", "parent api tpm refused 86% 130/150 12:00+1h0m0s")
}

func TestNearLimitAdjust(t *testing.T) {
	t.Parallel()
	var near nearLog
	b := setup(t, near.observe)
	b.chain("child", "parent")
	b.set("", "", weir.PerHour("tpm", 100))
	b.set("parent", "api", weir.PerHour("tpm", 1000).WithEnforce(weir.EnforceShadow))
	must(t, b.admin.Limits.SetNearLimit(b.ctx, admin.Thresholds{9, 90}))
	lease := b.take("child", weir.Tokens{"tpm": 8})
	must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"tpm": 82})))
	want := []string{
		"child api tpm threshold 9% 90/100 12:00+1h0m0s", "child api tpm threshold 90% 90/100 12:00+1h0m0s",
		"parent api tpm threshold shadow 9% 90/1000 12:00+1h0m0s",
	}
	near.want(t, "an adjust", want...)
	must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"tpm": -89})))
	must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"tpm": 200})))
	near.want(t, "another in the window")

	// A held lease is adjusted by a process that has no history of it.
	held := lease.Token("id", noon.Add(time.Hour))
	peer := b.peer(near.observe)
	must(t, errOf(peer.resume(held).Adjust(b.ctx, weir.Tokens{"tpm": 1})))
	near.want(t, "an adjust of a held lease",
		"child api tpm threshold 9% 202/100 12:00+1h0m0s", "child api tpm threshold 90% 202/100 12:00+1h0m0s",
		"parent api tpm threshold shadow 9% 202/1000 12:00+1h0m0s")
}

func TestNearLimitShadow(t *testing.T) {
	t.Parallel()
	var near nearLog
	b := shadowed(t, near.observe)
	b.take("alice", weir.Tokens{"rpm": 1, "tpm": 70})
	b.take("alice", weir.Tokens{"rpm": 1, "tpm": 40}) // left out
	near.want(t, "what was left out")
	b.take("alice", weir.Tokens{"rpm": 1, "tpm": 20})
	near.want(t, "90", "alice api tpm threshold shadow 80% 90/100 12:00+1h0m0s")
}

func TestNearLimitAllow(t *testing.T) {
	t.Parallel()
	var near nearLog
	cfg := weir.Config{Store: memory.New(&memory.Config{Now: func() time.Time { return noon }})}
	near.observe(&cfg)
	lim, err := weir.New(cfg)
	must(t, err)
	must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerHour("rpm", 5)))
	allowed := 0
	for range 7 {
		ok, err := lim.Allow(t.Context(), "alice", "api")
		must(t, err)
		if ok {
			allowed++
		}
	}
	near.want(t, "Allow",
		"alice api rpm threshold 80% 4/5 12:00+1h0m0s",
		"alice api rpm threshold 95% 5/5 12:00+1h0m0s", "alice api rpm threshold 100% 5/5 12:00+1h0m0s",
		"alice api rpm refused 100% 5/5 12:00+1h0m0s")
	if allowed != 5 {
		t.Errorf("%d of 7 were allowed, want 5", allowed)
	}
	must(t, lim.Close())
}

func TestNearLimitAcquireAll(t *testing.T) {
	t.Parallel()
	var near nearLog
	b := setup(t, near.observe)
	b.set("", "", weir.PerHour("tpm", 100))
	req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"tpm": 41}}
	bob := weir.Request{Entity: "bob", Resource: "api", Tokens: weir.Tokens{"tpm": 5}, Limits: []weir.Limit{weir.PerMinute("tpm", 6)}}
	_, err := b.AcquireAll(b.ctx, []weir.Request{req, bob, req})
	must(t, err)
	near.want(t, "two together",
		"alice api tpm threshold 80% 82/100 12:00+1h0m0s", "bob api tpm threshold override 80% 5/6 12:00+1m0s")
	_, err = b.AcquireAll(b.ctx, []weir.Request{bob, req})
	wantErr(t, err, weir.ErrExceeded)
	near.want(t, "a refusal of both",
		"bob api tpm refused override 83% 5/6 12:00+1h0m0s", "alice api tpm refused 82% 82/100 12:00+1h0m0s")
}

// Every process gives the same event the same ID, and different events different IDs.
func TestNearLimitID(t *testing.T) {
	t.Parallel()
	var near nearLog
	b := setup(t, near.observe)
	peer := b.peer(near.observe)
	b.set("", "", weir.PerHour("tpm", 100))
	b.take("alice", weir.Tokens{"tpm": 100})
	b.refused("alice", weir.Tokens{"tpm": 1})
	first := near.take()
	peer.refused("alice", weir.Tokens{"tpm": 1})
	second := near.take()
	ids := map[string]bool{}
	for i, e := range first {
		ids[e.ID] = true
		if e.ID != second[i].ID || len(e.ID) != 32 || strings.ToLower(e.ID) != e.ID {
			t.Errorf("%s %d%%: ids %q and %q", e.Kind, e.Percent, e.ID, second[i].ID)
		}
	}
	b.clock.advance(2 * time.Hour)
	b.take("alice", weir.Tokens{"tpm": 100})
	b.take("bob", weir.Tokens{"tpm": 100})
	for _, e := range near.take() {
		ids[e.ID] = true
	}
	if len(first) != 4 || len(ids) != 10 {
		t.Errorf("%d events have %d ids, want 10", len(first)+6, len(ids))
	}
	// The ID is part of the format: receivers may keep IDs for longer than a weir version is in use.
	if got, want := first[0].ID, "fa6e8bac0237e4663b7e7aae1cd37ae6"; got != want {
		t.Errorf("id %s, want %s", got, want)
	}
}

func TestNearLimitSettings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	get := func() admin.Thresholds {
		t.Helper()
		l, err := b.admin.Limits.Get(b.ctx, admin.Scope{})
		must(t, err)
		return l.NearLimit
	}
	must(t, b.admin.Limits.SetNearLimit(b.ctx, admin.Thresholds{}))
	if got := get(); got == nil || len(got) != 0 {
		t.Errorf("none is read as %#v", got)
	}
	must(t, b.admin.Limits.SetNearLimit(b.ctx, admin.Thresholds{80, 95}))
	if got := get(); !slices.Equal(got, admin.Thresholds{80, 95}) {
		t.Errorf("80, 95 is read as %v", got)
	}
	must(t, b.admin.Limits.SetOnUnavailable(b.ctx, admin.Scope{}, weir.OnUnavailableAllow)) // no change
	must(t, b.admin.Limits.SetNearLimit(b.ctx, admin.Thresholds{80, 95}))
	must(t, b.admin.Limits.SetOnUnavailable(b.ctx, admin.Scope{}, ""))
	must(t, b.admin.Limits.SetNearLimit(b.ctx, nil))
	_, err := b.admin.Limits.Get(b.ctx, admin.Scope{})
	wantErr(t, err, weir.ErrNotFound)
	page, err := b.admin.Audit.List(b.ctx, admin.AuditQuery{Subject: "system"})
	must(t, err)
	var told []string
	for _, e := range slices.Backward(page.Items) {
		told = append(told, fmt.Sprintf("%s %s", e.Action, e.After))
	}
	if diff := cmp.Diff([]string{
		`system.near_limit {"source":"system","near_limit":[]}`,
		`system.near_limit {"source":"system","near_limit":[80,95]}`,
		`system.on_unavailable {"source":"system","on_unavailable":"allow","near_limit":[80,95]}`,
		`system.on_unavailable {"source":"system","near_limit":[80,95]}`,
		`system.near_limit `,
	}, told); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		"80,x": "near_limit: \"x\" is not a percentage such as 80", "0": "near_limit: 0 is not a percentage from 1 to 100",
		"101": "near_limit: 101 is not a percentage from 1 to 100", "95,80": "near_limit: 80 comes after 95: the thresholds must ascend",
		"80,80": "near_limit: 80 comes after 80: the thresholds must ascend", "1,2,3,4,5,6,7,8,9": "near_limit: has 9 thresholds, at most 8 are allowed",
	} {
		if _, err := admin.ParseThresholds(text); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{"default", "none", "80,95,100", "1"} {
		if th, err := admin.ParseThresholds(text); err != nil || th.String() != text {
			t.Errorf("%s is read as %v, %v", text, th, err)
		}
	}
	if err := b.admin.Limits.SetNearLimit(b.ctx, admin.Thresholds{0}); err == nil {
		t.Error("0 is set")
	}
}

// If many callers spend at once, the event is reported once.
func TestNearLimitConcurrently(t *testing.T) {
	t.Parallel()
	var near nearLog
	b := setup(t, near.observe)
	b.set("", "", weir.PerHour("tpm", 100))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 15 {
				_, _ = b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"tpm": 1}}) // some are refused
			}
		})
	}
	wg.Wait()
	ids := map[string]bool{}
	events := near.take()
	for _, e := range events {
		ids[e.ID] = true
	}
	if len(events) != 4 || len(ids) != 4 {
		t.Errorf("%d events with %d ids, want three thresholds and a refusal", len(events), len(ids))
	}
	if limits, forgotten := parts.Of(b.Limiter).Meter.Stats(); limits != 1 || forgotten != 0 {
		t.Errorf("%d limits, %d forgotten", limits, forgotten)
	}
}

// A quota is reported at 50, 80 and 100 % once in each window, to a fleet under the same ids, also if a debt fills the
// next window; percentages that the namespace sets are those of all limits.
func TestNearLimitQuota(t *testing.T) {
	t.Parallel()
	var near nearLog
	b := setup(t, near.observe)
	peer := b.peer(near.observe)
	b.set("", "", quota(t, "usd", 100, "month@Europe/Berlin"))
	lease := b.take("alice", weir.Tokens{"usd": 50})
	must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"usd": 140}))) // 90 in debt
	peer.refused("alice", weir.Tokens{"usd": 1})
	const march = "23:00+743h0m0s" // an hour shorter
	events := near.take()
	near.events = events
	near.want(t, "a month",
		"alice api usd threshold 50% 50/100 "+march, "alice api usd threshold 80% 190/100 "+march,
		"alice api usd threshold 100% 190/100 "+march, "alice api usd threshold 50% 190/100 "+march,
		"alice api usd threshold 80% 190/100 "+march, "alice api usd threshold 100% 190/100 "+march,
		"alice api usd refused 190% 190/100 12:00+1h0m0s")
	for i := range 3 {
		if events[i].ID != events[i+3].ID || events[i].Left != events[i].Of-events[i].Used {
			t.Errorf("%+v, and from another process %+v", events[i], events[i+3])
		}
	}
	b.clock.advance(31 * 24 * time.Hour)
	b.take("alice", weir.Tokens{"usd": 1})
	b.take("alice", weir.Tokens{"usd": 1})
	near.want(t, "the next month, which began with a debt",
		"alice api usd threshold 50% 91/100 22:00+720h0m0s", "alice api usd threshold 80% 91/100 22:00+720h0m0s")
	must(t, b.admin.Limits.SetNearLimit(b.ctx, admin.Thresholds{95}))
	b.clock.advance(30 * 24 * time.Hour)
	b.take("alice", weir.Tokens{"usd": 95})
	near.want(t, "thresholds of the namespace", "alice api usd threshold 95% 95/100 22:00+744h0m0s")
}

// A balance is reported when what is left falls below a power of ten, by the process whose debit did, and again after it
// was topped up.
func TestNearLimitBalance(t *testing.T) {
	t.Parallel()
	var near nearLog
	b := setup(t, near.observe)
	b.set("alice", "api", weir.Limit{Name: "credits", Balance: true})
	credit := func(id string, n int64) {
		t.Helper()
		space, err := b.admin.Namespaces.Get(b.ctx, "default")
		must(t, err)
		must(t, errOf(b.fake.Credit(b.ctx, store.Credit{
			Bucket: store.Bucket{Namespace: space.ID, Entity: "alice", Resource: "api"}, Limit: "credits", Amount: 1000 * n, ID: id,
		})))
	}
	credit("one", 1500)
	b.take("alice", weir.Tokens{"credits": 500})
	near.want(t, "1,000 left")
	b.take("alice", weir.Tokens{"credits": 1})
	near.want(t, "999 left", "alice api credits threshold 0% 0/1000 12:00+1h0m0s")
	lease := b.take("alice", weir.Tokens{"credits": 994})
	near.want(t, "5 left", "alice api credits threshold 0% 0/10 12:00+1h0m0s")
	must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"credits": -990})))
	b.take("alice", weir.Tokens{"credits": 990})
	b.refused("alice", weir.Tokens{"credits": 6})
	b.refused("alice", weir.Tokens{"credits": 6})
	near.want(t, "a return, in the same hour", "alice api credits refused 0% 0/0 12:00+1h0m0s")
	b.take("alice", weir.Tokens{"credits": 5})
	near.want(t, "nothing left", "alice api credits threshold 0% 0/1 12:00+1h0m0s")
	credit("two", 100)
	b.clock.advance(time.Hour)
	b.take("alice", weir.Tokens{"credits": 95})
	if e := near.take(); len(e) != 1 || e[0].Of != 10 || e[0].Left != 5 || !e[0].WindowStart.Equal(b.clock.Now()) {
		t.Errorf("topped up: %+v", e)
	}
	must(t, b.admin.Limits.SetNearLimit(b.ctx, admin.Thresholds{}))
	b.clock.advance(time.Hour)
	b.take("alice", weir.Tokens{"credits": 5})
	near.want(t, "no thresholds")
}
