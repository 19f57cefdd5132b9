package grpcapi_test

import (
	"cmp"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/store/memory"
)

// limitJSON is a limit's status in an HTTP answer.
type limitJSON struct {
	Entity, Resource, Limit, Source, Period string
	Requested, Available, Amount, Burst     int64
	FullIn                                  float64 `json:"full_in"`
	RetryAfter                              float64 `json:"retry_after"`
	Refused, Shadow                         bool
	WouldRefuse                             bool `json:"would_refuse"`
}

type answerJSON struct {
	Type, Field       string
	Allowed, Degraded bool
	Reason            string
	Lease, Expires    string
	Limits            []limitJSON
	RetryAfter        float64 `json:"retry_after"`
}

// post sends a request over HTTP.
func (f *fixture) post(t *testing.T, path, body string) (int, answerJSON) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	f.http.ServeHTTP(w, r)
	var a answerJSON
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatalf("%v in %s", err, w.Body)
		}
	}
	return w.Code, a
}

func seconds(d *durationpb.Duration) float64 {
	return float64((d.AsDuration()+time.Millisecond-1)/time.Millisecond) / 1000
}

// asHTTP converts a status to its form over HTTP.
func asHTTP(st *weirv1.LimitStatus) limitJSON {
	periods := map[time.Duration]string{time.Second: "s", time.Minute: "min", time.Hour: "hour", 24 * time.Hour: "day"}
	source := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(st.GetSource().String(), "SOURCE_")), "_", "-")
	return limitJSON{
		Entity: st.GetEntity(), Resource: st.GetResource(), Limit: st.GetLimit(), Source: source, Period: periods[st.GetPeriod().AsDuration()],
		Requested: st.GetRequested(), Available: st.GetAvailable(), Amount: st.GetAmount(), Burst: st.GetBurst(),
		FullIn: seconds(st.GetFullIn()), RetryAfter: seconds(st.GetRetryAfter()), Refused: st.GetRefused(), Shadow: st.GetShadow(), WouldRefuse: st.GetWouldRefuse(),
	}
}

// kinds maps HTTP problem types to their codes and reasons over gRPC.
var kinds = map[string]string{
	"invalid": "InvalidArgument", "not-found": "NotFound", "no-limits": "FailedPrecondition NO_LIMITS",
	"exceeds-burst": "FailedPrecondition EXCEEDS_BURST", "temporary-reduced-capacity": "Unavailable",
	"settled": "FailedPrecondition SETTLED", "expired": "FailedPrecondition EXPIRED",
}

// kindOf returns an error in the form used in kinds, and the field that is wrong.
func kindOf(err error) (kind, field string) {
	st := status.Convert(err)
	kind = st.Code().String()
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			kind += " " + d.GetReason()
		case *errdetails.BadRequest:
			field = d.GetFieldViolations()[0].GetField()
		}
	}
	return kind, field
}

// TestAcquireAsHTTP sends the same request over HTTP and gRPC, to limiters in the same state. Only the form of the answers
// may differ.
func TestAcquireAsHTTP(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, json, rpc string }{
		{"two limits", `{"entity":"alice","resource":"gpt-4","tokens":{"rpm":1,"tpm":500}}`, ""},
		{"cascade", `{"entity":"child","resource":"gpt-4","tokens":{"rpm":1,"tpm":500}}`, ""},
		{"no tokens", `{"entity":"alice","resource":"gpt-4"}`, ""},
		{"zero tokens", `{"entity":"alice","resource":"gpt-4","tokens":{"rpm":0}}`, ""},
		{"refused", `{"entity":"spent","resource":"gpt-4","tokens":{"rpm":1,"tpm":700}}`, ""},
		{"refused after waiting", `{"entity":"spent","resource":"gpt-4","tokens":{"rpm":1,"tpm":700},"wait":"1s"}`, ""},
		{"admitted after waiting", `{"entity":"spent","resource":"gpt-4","tokens":{"tpm":410},"wait":"60s"}`, ""},
		{
			"override", `{"entity":"alice","resource":"gpt-4","tokens":{"x":2},"limits":["x:5/s:9"]}`,
			`{"entity":"alice","resource":"gpt-4","tokens":{"x":2},"limits":[{"name":"x","amount":5,"period":"1s","burst":9}]}`,
		},
		{"shadow", `{"entity":"alice","resource":"try","tokens":{"tpm":150}}`, ""},
		{"namespace", `{"entity":"alice","resource":"gpt-4","namespace":"blue","tokens":{"rps":1}}`, ""},

		{"no entity", `{"resource":"gpt-4"}`, ""},
		{"bad entity", `{"entity":"\u0007","resource":"gpt-4"}`, ""},
		{"unknown limit", `{"entity":"alice","resource":"gpt-4","tokens":{"nope":1}}`, ""},
		{"negative", `{"entity":"alice","resource":"gpt-4","tokens":{"rpm":-1}}`, ""},
		{"huge", `{"entity":"alice","resource":"gpt-4","tokens":{"rpm":9223372036854775807}}`, ""},
		{"more than the burst", `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":1001}}`, ""},
		{"no limits", `{"entity":"alice","resource":"other"}`, ""},
		{"no namespace", `{"entity":"alice","resource":"gpt-4","namespace":"nowhere"}`, ""},
		{"wait too long", `{"entity":"alice","resource":"gpt-4","wait":"61s"}`, ""},
		{"negative wait", `{"entity":"alice","resource":"gpt-4","wait":"-1s"}`, ""},
		{
			"override twice", `{"entity":"alice","resource":"gpt-4","limits":["x:5/s","x:6/s"]}`,
			`{"entity":"alice","resource":"gpt-4","limits":[{"name":"x","amount":5,"period":"1s"},{"name":"x","amount":6,"period":"1s"}]}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				var in weirv1.AcquireRequest
				if err := protojson.Unmarshal([]byte(cmp.Or(tt.rpc, tt.json)), &in); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_, want := prepared(t).post(t, "/v1/acquire", tt.json)
				waited, httpAt := time.Since(began), time.Now()

				began = time.Now()
				got, err := prepared(t).Acquire(t.Context(), &in)
				if time.Since(began) != waited {
					t.Errorf("answered after %s, HTTP after %s", time.Since(began), waited)
				}
				if kind := want.Type[strings.LastIndex(want.Type, "#")+1:]; kind != "" && kind != "quota-exceeded" {
					code, field := kindOf(err)
					if code != kinds[kind] || field != want.Field {
						t.Fatalf("got %v of %q, want %s of %q", err, field, kinds[kind], want.Field)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				var limits []limitJSON
				for _, st := range got.GetLimits() {
					limits = append(limits, asHTTP(st))
				}
				// The refusal of a wait lists limits in any order.
				byName := func(a, b limitJSON) int { return cmp.Compare(a.Entity+a.Limit, b.Entity+b.Limit) }
				if in.GetWait() != nil {
					slices.SortFunc(limits, byName)
					slices.SortFunc(want.Limits, byName)
				}
				if got.GetAllowed() != want.Allowed || got.GetDegraded() != want.Degraded || !slices.Equal(limits, want.Limits) {
					t.Errorf("got %v, want %+v", got, want)
				}
				if expires, _ := time.Parse(time.RFC3339Nano, want.Expires); want.Allowed && time.Until(got.GetExpires().AsTime()) != expires.Sub(httpAt) ||
					got.GetAllowed() == (got.GetLease() == "") {
					t.Errorf("lease %q until %v, want until %s", got.GetLease(), got.GetExpires().AsTime(), want.Expires)
				}
				exact := time.Duration(0)
				for _, st := range got.GetLimits() {
					exact = max(exact, st.GetRetryAfter().AsDuration())
				}
				if retry := got.GetRetryAfter().AsDuration(); !got.GetAllowed() && (retry < exact || retry > exact*13/10+1) {
					t.Errorf("retry after %s, exact is %s", retry, exact)
				}
			})
		})
	}
}

// prepared is a fixture with many settings and some tokens spent.
func prepared(t *testing.T) *fixture {
	t.Helper()
	f := setup(t, grpcapi.Config{})
	ctx := t.Context()
	shadow := weir.PerHour("tpm", 100)
	shadow.Enforce = weir.EnforceShadow
	for _, err := range []error{
		admin.New(f.lim).Entities.Create(ctx, admin.Entity{ID: "parent"}),
		admin.New(f.lim).Entities.Create(ctx, admin.Entity{ID: "child", Parent: "parent", Cascade: true}),
		admin.New(f.lim).Limits.Set(ctx, admin.Scope{Resource: "try"}, shadow),
		admin.New(f.lim).Limits.Set(ctx, admin.Scope{Entity: "spent", Resource: "gpt-4"}, weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 1000)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.New(f.lim).Namespaces.Create(ctx, "blue"); err != nil {
		t.Fatal(err)
	}
	if err := admin.New(f.lim.In("blue")).Limits.Set(ctx, admin.Scope{}, weir.PerSecond("rps", 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.lim.Acquire(ctx, weir.Request{Entity: "spent", Resource: "gpt-4", Tokens: weir.Tokens{"tpm": 600}}); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestAcquireRefusesMistakes covers mistakes that HTTP does not have, or has in another form.
func TestAcquireRefusesMistakes(t *testing.T) {
	t.Parallel()
	f := setup(t, grpcapi.Config{})
	unknown := alice(1, 1)
	unknown.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	for _, tt := range []struct {
		field string
		in    *weirv1.AcquireRequest
	}{
		{"request", unknown},
		{"on_unavailable", &weirv1.AcquireRequest{Entity: "alice", Resource: "gpt-4", OnUnavailable: 7}},
		{"wait", &weirv1.AcquireRequest{Entity: "alice", Resource: "gpt-4", Wait: &durationpb.Duration{Seconds: 1, Nanos: -1}}},
		{"limits[0].period", &weirv1.AcquireRequest{Entity: "alice", Resource: "gpt-4", Limits: []*weirv1.Limit{{Name: "x", Amount: 1}}}},
		{"limits[0].period", &weirv1.AcquireRequest{Entity: "alice", Resource: "gpt-4", Limits: []*weirv1.Limit{{Name: "x", Amount: 1, Period: &durationpb.Duration{Seconds: 1, Nanos: -1}}}}},
		{"limit x: period", &weirv1.AcquireRequest{Entity: "alice", Resource: "gpt-4", Limits: []*weirv1.Limit{{Name: "x", Amount: 1, Period: durationpb.New(0)}}}},
		{"limit x: amount", &weirv1.AcquireRequest{Entity: "alice", Resource: "gpt-4", Limits: []*weirv1.Limit{{Name: "x", Period: durationpb.New(1e9)}}}},
	} {
		_, err := f.Acquire(t.Context(), tt.in)
		wants(t, err, codes.InvalidArgument, tt.field)
	}
	if got := f.left(t); got != 1000 {
		t.Errorf("%d of 1000 are left: a mistake has spent", got)
	}
}

func TestAcquireWithoutTheStore(t *testing.T) {
	t.Parallel()
	f := over(t, &failing{memory.New(nil), errDown}, grpcapi.Config{})
	_, err := f.Acquire(t.Context(), alice(1, 1))
	wants(t, err, codes.Unavailable, "retry")
	in := alice(1, 1)
	in.OnUnavailable = weirv1.OnUnavailable_ON_UNAVAILABLE_ALLOW
	_, err = f.Acquire(t.Context(), in) // it can only be stricter than the server
	wants(t, err, codes.Unavailable, "retry")
	f = overLimiter(t, weir.Config{Store: &failing{memory.New(nil), errDown}, OnUnavailable: weir.OnUnavailableAllow}, grpcapi.Config{})
	a, err := f.Acquire(t.Context(), alice(1, 1))
	if err != nil || !a.GetAllowed() || !a.GetDegraded() || a.GetReason() == "" || strings.Contains(a.GetReason(), "down") || a.GetLease() == "" {
		t.Errorf("got %v, %v", a, err)
	}
	if a.GetOver() != -1 {
		t.Errorf("over %d: there is no bound", a.GetOver())
	}
	in.OnUnavailable = weirv1.OnUnavailable_ON_UNAVAILABLE_LOCAL
	a, err = f.Acquire(t.Context(), in)
	if err != nil || !a.GetAllowed() || !a.GetDegraded() || a.GetOver() <= 0 || len(a.GetLimits()) == 0 || a.GetOver() < a.GetLimits()[0].GetBurst() {
		t.Errorf("got %v, %v", a, err)
	}
	in.Tokens = map[string]int64{a.GetLimits()[0].GetLimit(): a.GetLimits()[0].GetBurst()}
	a, err = f.Acquire(t.Context(), in) // more than is left
	if err != nil || a.GetAllowed() || !a.GetDegraded() || a.GetRetryAfter() == nil {
		t.Errorf("got %v, %v", a, err)
	}
	in.OnUnavailable = weirv1.OnUnavailable_ON_UNAVAILABLE_DENY
	_, err = f.Acquire(t.Context(), in)
	wants(t, err, codes.Unavailable, "retry")
}

// TestWaitersAndDrain checks that waiting requests are refused when the server stops.
func TestWaitersAndDrain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := setup(t, grpcapi.Config{})
		f.acquire(t, 1, 1000)
		in := alice(1, 900)
		in.Wait = durationpb.New(time.Minute)
		sent := make(chan error, 1)
		go func() {
			_, err := f.Acquire(t.Context(), in)
			sent <- err
		}()
		time.Sleep(time.Second)
		f.stop()
		if err := f.ended(); err != nil {
			t.Error(err)
		}
		wants(t, <-sent, codes.Unavailable, "retry")
	})
}
