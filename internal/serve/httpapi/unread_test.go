package httpapi_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/conns"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// long sets limits of 50 a day for which an answer has half a megabyte: as many as can be, with long names. It returns the
// entity, the resource and one of their names.
func (f *fixture) long(t *testing.T) (entity, resource, limit string) {
	t.Helper()
	ad := admin.New(f.lim)
	for i := range weir.MaxDepth {
		id := fmt.Sprint(strings.Repeat("e", 250), i)
		if err := ad.Entities.Create(t.Context(), admin.Entity{ID: id, Parent: entity, Cascade: true}); err != nil {
			t.Fatal(err)
		}
		entity = id
	}
	limits := make([]weir.Limit, 64)
	for i := range limits {
		limits[i] = weir.PerDay(fmt.Sprint(strings.Repeat("l", 60), i), 50)
	}
	resource = strings.Repeat("r", 250)
	if err := ad.Limits.Set(t.Context(), admin.Scope{Resource: resource}, limits...); err != nil {
		t.Fatal(err)
	}
	return entity, resource, limits[0].Name
}

// unread is a client that reads no more than the beginning of an answer until it is let go.
type unread struct {
	*httptest.ResponseRecorder
	read <-chan struct{}
	held int // what it has not read
}

func (u *unread) Write(p []byte) (int, error) {
	if len(p) > 4<<10 {
		u.held = len(p)
		<-u.read
		u.held = 0
	}
	return u.ResponseRecorder.Write(p)
}

// TestUnreadAnswers checks that answers that clients do not read hold no more than the budget of bytes, that those for which
// there is no room are short, and that nothing is held once they were read.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	const budget, n = 4 << 20, 20
	for _, tt := range []struct {
		name, method, to, body string
		status, short          int
	}{
		{"decisions", "POST", "/v1/acquire", `{"entity":"E","resource":"R"}`, 200, 503},
		{"refusals", "POST", "/v1/acquire", `{"entity":"E","resource":"R","tokens":{"L":1}}`, 429, 429},
		{"levels", "GET", "/v1/available?entity=E&resource=R", "", 200, 503},
		{"events", "GET", "/v1/watch?entity=E&resource=R&max=1", "", 200, 503},
		{"operations", "GET", "/v1/explain?entity=E&resource=R", "", 200, 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := setup(t, httpapi.Config{Config: decide.Config{Held: conns.NewBudget(budget)}})
				entity, resource, limit := f.long(t)
				fill := strings.NewReplacer("E", entity, "R", resource, "L", limit)
				if tt.status == 429 {
					f.must(t, 200, "POST", "/v1/acquire", fill.Replace(`{"entity":"E","resource":"R","tokens":{"L":50}}`))
				}
				for range 2 {
					read := make(chan struct{})
					var all []*unread
					for range n {
						u := &unread{httptest.NewRecorder(), read, 0}
						r := httptest.NewRequestWithContext(t.Context(), tt.method, fill.Replace(tt.to), strings.NewReader(fill.Replace(tt.body)))
						if tt.body != "" {
							r.Header.Set("Content-Type", "application/json")
						}
						go f.h.ServeHTTP(u, r)
						all = append(all, u)
					}
					synctest.Wait()
					held, statuses := 0, make(map[string]int)
					for _, u := range all {
						held += u.held
						statuses[fmt.Sprint(u.Code, u.held > 0)]++
					}
					long := statuses[fmt.Sprint(tt.status, true)]
					if held > budget || held < budget/2 || long+statuses[fmt.Sprint(tt.short, false)] != n {
						t.Errorf("%d bytes are held, the budget is %d; answered with %v", held, budget, statuses)
					}
					close(read)
					synctest.Wait()
				}
			})
		})
	}
}

// TestUnreadPlans checks that clients that do not read what they were answered about manifests keep nobody from theirs.
func TestUnreadPlans(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	synctest.Test(t, func(t *testing.T) {
		var resources []string
		for i := range 100 {
			resources = append(resources, fmt.Sprintf(`"r%d":{"limits":{"rpm":{"capacity":1}}}`, i))
		}
		body := `{"namespace":"blue","resources":{` + strings.Join(resources, ",") + `}}`
		read := make(chan struct{})
		defer close(read)
		for _, who := range []string{"read", "read", "read", "admin"} { // as many as are worked on at once
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/manifests/plan", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+g.tokens[who])
			u := &unread{httptest.NewRecorder(), read, 0}
			go g.h.ServeHTTP(u, r)
			synctest.Wait()
			if u.held == 0 {
				t.Fatalf("got %d %s", u.Code, u.Body)
			}
		}
		g.as(t, 200, "root", "POST /v1/manifests/plan", body)
	})
}
