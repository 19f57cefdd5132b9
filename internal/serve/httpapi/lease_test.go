package httpapi_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/serve/leaseid"
)

func quote(s string) []byte {
	b, _ := json.Marshal(s)
	return b
}

func TestLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{})
		first := "/v1/leases/" + f.acquire(t, "500")
		a := f.must(t, 200, "POST", first+"/adjust", `{"tokens":{"tpm":-300}}`)
		if got := f.available(t); got != 800 {
			t.Errorf("%d are available after 200 of 1000", got)
		}
		f.must(t, 409, "POST", first+"/adjust", `{"tokens":{"tpm":-300}}`)
		f.must(t, 409, "POST", first+"/rollback", "")
		second := "/v1/leases/" + a.JSON["lease"].(string)
		f.must(t, 400, "POST", second+"/adjust", `{"tokens":{"tpm":-201}}`)
		f.must(t, 400, "POST", second+"/adjust", `{"tokens":{"nope":1}}`)
		f.must(t, 400, "POST", second+"/adjust", `{}`)
		a = f.must(t, 200, "POST", second+"/adjust", `{"tokens":{"tpm":900}}`)
		if got := f.available(t); got != -100 {
			t.Errorf("%d are available after 1100 of 1000", got)
		}
		third := "/v1/leases/" + a.JSON["lease"].(string)
		f.must(t, 204, "POST", third+"/commit", "")
		f.must(t, 204, "POST", third+"/commit", "{}")
		f.must(t, 204, "POST", third+"/rollback", "")
		f.must(t, 409, "POST", third+"/rollback", "")
		if got := f.available(t); got != 1000 {
			t.Errorf("%d of 1000 are available after the rollback", got)
		}
	})
}

// TestLeaseLeftOut checks that a lease remembers, in its id, what a limit in shadow has left out.
func TestLeaseLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{})
		f.must(t, 200, "PUT", "/v1/limits?resource=try", `{"limits":["rpm:10/hour",{"name":"tpm","amount":100,"period":"hour","enforce":"shadow"}]}`)
		left := func() (rpm, tpm float64) {
			ls := f.must(t, 200, "GET", "/v1/available?entity=alice&resource=try", "").JSON["limits"].([]any)
			return ls[0].(map[string]any)["available"].(float64), ls[1].(map[string]any)["available"].(float64)
		}
		acquire := func(tokens string) string {
			a := f.must(t, 200, "POST", "/v1/acquire", `{"entity":"alice","resource":"try","tokens":`+tokens+`}`)
			return "/v1/leases/" + a.JSON["lease"].(string)
		}
		acquire(`{"tpm":60}`)
		lease := acquire(`{"rpm":2,"tpm":50}`)
		a := f.must(t, 200, "POST", lease+"/adjust", `{"tokens":{"rpm":1,"tpm":-20}}`)
		lease = "/v1/leases/" + a.JSON["lease"].(string)
		f.must(t, 200, "POST", lease+"/adjust", `{"tokens":{"tpm":30}}`)
		if rpm, tpm := left(); rpm != 7 || tpm != 40 {
			t.Errorf("%v rpm and %v tpm are left", rpm, tpm)
		}
		f.must(t, 204, "POST", lease+"/rollback", "")
		if rpm, tpm := left(); rpm != 10 || tpm != 40 {
			t.Errorf("%v rpm and %v tpm are left after the rollback", rpm, tpm)
		}
	})
}

// TestLeaseExpires waits until the lease counts as committed.
func TestLeaseExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{Config: decide.Config{LeaseTTL: 5 * time.Second}})
		lease := "/v1/leases/" + f.acquire(t, "1000")
		time.Sleep(5 * time.Second)
		f.must(t, 204, "POST", lease+"/commit", "")
		time.Sleep(time.Second)
		for _, to := range []string{"/commit", "/rollback"} {
			if a := f.must(t, 410, "POST", lease+to, ""); !strings.HasSuffix(a.JSON["type"].(string), "#expired") {
				t.Errorf("%s: got %s", to, a.Body)
			}
		}
		f.must(t, 410, "POST", lease+"/adjust", `{"tokens":{"tpm":-1}}`)
		if got := f.available(t); got != 100 {
			t.Errorf("%d of 1000 are available 6 s after 1000 were spent", got)
		}
	})
}

// TestTwoInstances repeatedly settles one lease through two servers at once.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{})
		g := over(t, f.store, httpapi.Config{})
		lease := "/v1/leases/" + f.acquire(t, "500")
		g.must(t, 200, "POST", lease+"/adjust", `{"tokens":{"tpm":-100}}`)
		f.must(t, 409, "POST", lease+"/adjust", `{"tokens":{"tpm":-100}}`)

		lease = "/v1/leases/" + g.acquire(t, "300")
		var given, used atomic.Int32
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				switch a := []*fixture{f, g}[i%2].do(t, "POST", lease+"/rollback", ""); a.Code {
				case 204:
					given.Add(1)
				case 409:
					used.Add(1)
				}
			})
		}
		wg.Wait()
		if given.Load() != 1 || used.Load() != 31 {
			t.Errorf("given back %d times, used up %d times", given.Load(), used.Load())
		}
		if got := f.available(t); got != 600 {
			t.Errorf("%d are available after 400 of 1000", got)
		}
	})
}

// TestForged changes every character of a lease id, signs with another key, and uses a lease where its namespace does not
// exist.
func TestForged(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	id := f.acquire(t, "500")
	bad := []string{"a", id + "a", id + "AAAA", id[:len(id)-1], id[4:], base64.RawURLEncoding.EncodeToString(make([]byte, 100)), strings.Repeat("A", 300<<10)}
	for i := range id {
		c := byte('A')
		if id[i] == 'A' {
			c = 'B'
		}
		bad = append(bad, id[:i]+string(c)+id[i+1:])
	}
	other := setup(t, httpapi.Config{Config: decide.Config{Signer: signer("a key of sixteen")}})
	bad = append(bad, other.acquire(t, "500"))
	var detail string
	for _, id := range bad {
		a := f.must(t, 404, "POST", "/v1/leases/"+id+"/rollback", "")
		if detail == "" {
			detail = a.Body.String()
		} else if a.Body.String() != detail {
			t.Fatalf("what is wrong shows: %s", a.Body)
		}
	}
	f.must(t, 204, "POST", "/v1/leases/"+id+"/rollback", "")

	f.must(t, 201, "POST", "/v1/namespaces", `{"name":"blue"}`)
	f.must(t, 200, "PUT", "/v1/limits?namespace=blue", `{"limits":["rpm:10/min"]}`)
	a := f.must(t, 200, "POST", "/v1/acquire", `{"entity":"alice","resource":"gpt-4","namespace":"blue","tokens":{"rpm":1}}`)
	lease := "/v1/leases/" + a.JSON["lease"].(string)
	f.must(t, 400, "POST", lease+"/rollback?namespace=default", "")
	f.must(t, 204, "DELETE", "/v1/namespaces/blue", "")
	f.must(t, 404, "POST", lease+"/rollback", "")
	f.must(t, 204, "POST", "/v1/namespaces/blue/purge", "")
	f.must(t, 201, "POST", "/v1/namespaces", `{"name":"blue"}`)
	f.must(t, 400, "POST", lease+"/rollback", "")
}

// signer returns a signer that never changes.
func signer(keys ...string) func() *leaseid.Signer {
	s, err := leaseid.Read(strings.Join(keys, "\n"))
	if err != nil {
		panic(err)
	}
	return func() *leaseid.Signer { return s }
}

// TestRotation changes the keys of a server: a lease lasts until no key is left that it was signed with.
func TestRotation(t *testing.T) {
	t.Parallel()
	const older, newer = "the older key of leases", "the newer key of leases"
	keys := signer(older)
	f := setup(t, httpapi.Config{Config: decide.Config{Signer: func() *leaseid.Signer { return keys() }}})
	kept, lost := f.acquire(t, "100"), f.acquire(t, "100")
	keys = signer(newer, older)
	a := f.must(t, 200, "POST", "/v1/leases/"+kept+"/adjust", `{"tokens":{"tpm":1}}`)
	kept = a.JSON["lease"].(string) // signed with the newer key
	keys = signer(newer)
	f.must(t, 204, "POST", "/v1/leases/"+kept+"/rollback", "")
	f.must(t, 404, "POST", "/v1/leases/"+lost+"/rollback", "")
}
