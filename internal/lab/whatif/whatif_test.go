package whatif_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/lab/whatif"
)

var noon = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

// spent is an hour of an entity in which each request was one token of rpm.
func spent(entity string, after int, n, peak int64) admin.Usage {
	return admin.Usage{
		Window: admin.Hourly, Start: noon.Add(time.Duration(after) * time.Hour), Entity: entity, Resource: "api", Requests: n,
		Limits: []admin.LimitUsage{{Limit: "rpm", Consumed: n, Debited: n, Peak: peak}},
	}
}

func try(t *testing.T, l weir.Limit, windows ...admin.Usage) *whatif.Report {
	t.Helper()
	r, err := whatif.Run(windows, whatif.Config{Limits: func(string, string) []weir.Limit { return []weir.Limit{l} }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func limit(t *testing.T, text string) weir.Limit {
	t.Helper()
	l, err := weir.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestQuotaInReports checks that a quota is suggested with its window, and that a former rate has none, and the reverse.
func TestQuotaInReports(t *testing.T) {
	t.Parallel()
	l := limit(t, "rpm:100/month@Europe/Berlin")
	cfg := whatif.Config{Limits: func(string, string) []weir.Limit { return []weir.Limit{l} }, Target: 0.5}
	windows := []admin.Usage{spent("a", 0, 300, 60), spent("a", 1, 100, 40)}
	r, err := whatif.Run(windows, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*weir.Limit{r.Suggest[0].Least, r.Suggest[0].Even, r.Suggest[0].Enough} {
		if s == nil || s.Window != l.Window || s.Amount < 200 || s.Amount > 201 {
			t.Errorf("suggested %+v", s)
		}
	}
	l.Enforce, l.Former = weir.EnforceShadow, weir.PerMinute("rpm", 1000).Rate()
	if got := try(t, l, windows...).Most; len(got) != 0 {
		t.Errorf("a former rate: %+v", got)
	}
	was := weir.PerMinute("rpm", 1000)
	was.Enforce, was.Former = weir.EnforceShadow, l.WithEnforce(weir.EnforceOn).Rate()
	if got := try(t, was, windows...).Most; len(got) != 1 || got[0].Limit.Window != l.Window || got[0].Least != 300 {
		t.Errorf("a former quota: %+v", got)
	}
}

// TestBalanceLeftOut checks that a balance is left out, and that the report contains why.
func TestBalanceLeftOut(t *testing.T) {
	t.Parallel()
	r := try(t, limit(t, "credits:balance"), spent("a", 0, 10, 10))
	if r.Buckets != 0 || len(r.Limits) != 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "balances are left out") {
		t.Errorf("%+v", r)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	ten := weir.PerMinute("rpm", 10) // 600 an hour, and a burst of 10
	for _, tt := range []struct {
		name              string
		limit             weir.Limit
		windows           []admin.Usage
		least, even, most int64
	}{
		{"little", ten, []admin.Usage{spent("a", 0, 4, 2)}, 0, 0, 0},
		{"two busiest minutes may be one", ten, []admin.Usage{spent("a", 0, 10, 5)}, 0, 0, 1},
		{"more than an hour gives", ten, []admin.Usage{spent("a", 0, 1000, 20)}, 390, 390, 775},
		{"a busy minute", ten, []admin.Usage{spent("a", 0, 50, 50)}, 30, 30, 41},
		{"the burst is there once", ten, []admin.Usage{spent("a", 0, 610, 11), spent("a", 1, 610, 11)}, 10, 10, 731},
		{"and again after a pause", ten, []admin.Usage{spent("a", 0, 610, 11), spent("a", 2, 610, 11)}, 0, 0, 721},
		{"others do not matter", ten, []admin.Usage{spent("a", 0, 610, 11), spent("b", 1, 610, 11)}, 0, 0, 721},
		{"ten busy minutes in a row", ten.WithBurst(100), []admin.Usage{spent("a", 0, 600, 60)}, 0, 0, 421},
		{"a quota", limit(t, "rpm:100/day@UTC"), []admin.Usage{spent("a", 0, 60, 60), spent("a", 1, 60, 60)}, 20, 20, 21},
		{"the next window", limit(t, "rpm:100/day@UTC"), []admin.Usage{spent("a", 11, 100, 100), spent("a", 12, 100, 100)}, 0, 0, 2},
		{"a window within", limit(t, "rpm:100/day@Asia/Kolkata"), []admin.Usage{spent("a", 6, 250, 100)}, 50, 50, 151},
		{"a debt of a window", limit(t, "rpm:100/month@UTC"), []admin.Usage{spent("a", 0, 100, 9), spent("a", 240, 300, 9)}, 300, 300, 301},
		{"day", weir.PerDay("rpm", 100), []admin.Usage{spent("a", 0, 300, 300)}, 199, 199, 201},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := try(t, tt.limit, tt.windows...).Limits[0]
			if l.Least != tt.least || l.AtMost != tt.most || l.Even < tt.even-2 || l.Even > tt.even+2 {
				t.Errorf("%d to %d, %d if even; want %d to %d, %d", l.Least, l.AtMost, l.Even, tt.least, tt.most, tt.even)
			}
		})
	}
}

// TestRefusedThen checks that requests refused at the time count only towards the upper bound, because they may have been
// retried since.
func TestRefusedThen(t *testing.T) {
	t.Parallel()
	u := spent("a", 0, 10, 10)
	u.Refused, u.Limits[0].Refused, u.Limits[0].RefusedTokens = 90, 90, 90
	r := try(t, weir.PerMinute("rpm", 20), u)
	if l := r.Limits[0]; l.Asked != 100 || l.Least != 0 || l.AtMost < 80 || r.Then != 90 {
		t.Errorf("%+v, %d then", l, r.Then)
	}
}

// TestReturned checks that returned tokens do not count as spent.
func TestReturned(t *testing.T) {
	t.Parallel()
	u := spent("a", 0, 1000, 900)
	u.Limits[0].Returned = 800
	if l := try(t, weir.PerMinute("rpm", 10), u).Limits[0]; l.Least != 80 {
		t.Errorf("%+v", l) // the minute: 900 less 800, a burst of 10 and 10 issued
	}
}

func TestWho(t *testing.T) {
	t.Parallel()
	r := try(t, weir.PerMinute("rpm", 10), spent("quiet", 0, 1, 1), spent("busy", 0, 5000, 200), spent("perhaps", 1, 30, 7), spent("busy", 2, 1, 1))
	if r.Surely != 1 || r.Perhaps != 2 || r.Buckets != 3 || r.Windows != 4 {
		t.Errorf("%+v", r)
	}
	if len(r.Most) != 2 || r.Most[0].Entity != "busy" || r.Most[1].Entity != "perhaps" || !r.Most[1].First.Equal(noon.Add(time.Hour)) {
		t.Errorf("%+v", r.Most)
	}
	if want := []whatif.Moment{{noon, 1, 1}, {noon.Add(time.Hour), 0, 1}}; !reflect.DeepEqual(r.When, want) {
		t.Errorf("%+v", r.When)
	}
	if !r.From.Equal(noon) || !r.To.Equal(noon.Add(3*time.Hour)) {
		t.Errorf("%s to %s", r.From, r.To)
	}
}

// TestEnforced checks that a limit in shadow refuses nothing, and that a limit enforced for some entities refuses the
// others what its former rate did.
func TestEnforced(t *testing.T) {
	t.Parallel()
	l := weir.PerMinute("rpm", 1)
	l.Enforce = weir.EnforceShadow
	if r := try(t, l, spent("a", 0, 100, 100)); r.Buckets != 0 {
		t.Errorf("shadow: %+v", r)
	}
	l.Enforce, l.Former = 1, weir.PerMinute("rpm", 1000).Rate()
	refused := 0
	for entity := range strings.FieldsSeq("a b c d e f g h i j") {
		refused += try(t, l, spent(entity, 0, 100, 100)).Surely
	}
	if refused > 3 {
		t.Errorf("of ten, 1%% refuses %d", refused)
	}
}

func TestSuggest(t *testing.T) {
	t.Parallel()
	l := weir.PerMinute("rpm", 10)
	cfg := whatif.Config{Limits: func(string, string) []weir.Limit { return []weir.Limit{l} }, Target: 0.01}
	windows := []admin.Usage{spent("a", 0, 1000, 60), spent("a", 1, 200, 40)}
	r, err := whatif.Run(windows, cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Suggest[0]
	if s.Least.Amount > s.Even.Amount || s.Even.Amount > s.Enough.Amount {
		t.Errorf("%+v", s)
	}
	refused := func(l *weir.Limit) whatif.LimitResult { return try(t, *l, windows...).Limits[0] }
	if got := refused(s.Enough); got.AtMost > 12 {
		t.Errorf("%s refuses %d", s.Enough, got.AtMost)
	}
	below := *s.Least
	below.Amount--
	below.Burst--
	if got := refused(&below); got.Least < 12 {
		t.Errorf("below %s at least %d are refused", s.Least, got.Least)
	}
}

// TestRequestsInstead checks that a limit with a new name is compared with requests, or with the limit it is mapped to.
func TestRequestsInstead(t *testing.T) {
	t.Parallel()
	l := weir.PerMinute("calls", 5)
	u := spent("a", 0, 100, 3)
	if r := try(t, l, u); len(r.Notes) != 1 || r.Limits[0].Asked != 100 || r.Limits[0].AtMost != 96 {
		t.Errorf("%+v", r)
	}
	r, err := whatif.Run([]admin.Usage{u}, whatif.Config{
		Limits: func(string, string) []weir.Limit { return []weir.Limit{l} }, Tokens: map[string]string{"calls": "rpm"},
	})
	if err != nil || len(r.Notes) != 0 || r.Limits[0].AtMost >= 96 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRunFails(t *testing.T) {
	t.Parallel()
	limits := func(string, string) []weir.Limit { return []weir.Limit{weir.PerMinute("rpm", 1)} }
	other := spent("a", 0, 1, 1)
	other.Window = admin.Daily
	for want, windows := range map[string][]admin.Usage{
		"not of an entity": {{Window: admin.Hourly, Start: noon, Resource: "api"}},
		"of one type":      {spent("a", 0, 1, 1), other},
	} {
		if _, err := whatif.Run(windows, whatif.Config{Limits: limits}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := whatif.Run(nil, whatif.Config{Limits: limits, Target: 1}); err == nil {
		t.Error("a target of all")
	}
}

const table = `start,entity,resource,requests,refused,limit,consumed,debited,returned,peak,refused_by,adjustments
2026-11-20T12,"key, alice",api,10,2,rpm,10,10,0,4,2,0
2026-11-20T12,"key, alice",api,10,2,tpm,900,1000,100,500,0,3
2026-11-20T12,bob,api,0,0,,,,,,,
2026-11-20T13,bob,api,1,0,rpm,1,1,0,1,0,0
`

func TestRead(t *testing.T) {
	t.Parallel()
	got, err := whatif.Read(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0].Entity != "key, alice" || got[0].Window != admin.Hourly || !got[0].Start.Equal(noon) || len(got[0].Limits) != 2 || len(got[1].Limits) != 0 {
		t.Errorf("%+v", got)
	}
	if want := (admin.LimitUsage{Limit: "tpm", Debited: 1000, Returned: 100, Peak: 500}); got[0].Limits[1] != want {
		t.Errorf("%+v", got[0].Limits[1])
	}
	for _, key := range []string{"items", "windows"} {
		text, err := json.Marshal(map[string]any{key: got})
		if err != nil {
			t.Fatal(err)
		}
		again, err := whatif.Read(strings.NewReader("\n " + string(text)))
		if err != nil || len(again) != len(got) || !reflect.DeepEqual(again[0], got[0]) {
			t.Errorf("%s: %+v, %v", key, again, err)
		}
	}
}

func TestReadFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"", "is empty"},
		{"  \n", "is empty"},
		{"{}", "no windows"},
		{`{"items":3}`, "read usage"},
		{"a,b\n", `no column "start"`},
		{strings.Split(table, "\n")[0] + "\n", "no windows"},
		{strings.Replace(table, "2026-11-20T13", "yesterday", 1), `line 5: start "yesterday"`},
		{strings.Replace(table, "1000", "-1", 1), `line 3: debited "-1"`},
		{strings.Replace(table, "bob,api", "bob", 1), "wrong number of fields"},
	} {
		if _, err := whatif.Read(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.want, err)
		}
	}
	broken := errors.New("broken disk")
	if _, err := whatif.Read(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Error(err)
	}
}
