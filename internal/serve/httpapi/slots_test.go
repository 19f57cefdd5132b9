package httpapi_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/store/memory"
)

// afterEpoch is how long to sleep at first: clocks before the epoch would be far behind.
func afterEpoch() time.Duration { return time.Until(clock.Epoch) + time.Hour }

const oneSlot = `{"entity":"alice","resource":"video"}`

// withSlots returns servers over one store, on which the resource video has n slots.
func withSlots(t *testing.T, servers, n int) []*fixture {
	t.Helper()
	st := memory.New(nil)
	var all []*fixture
	for range servers {
		all = append(all, over(t, st, httpapi.Config{}))
	}
	l := weir.Limit{Name: "parallel", Slots: int64(n)}
	if err := admin.New(all[0].lim).Limits.Set(t.Context(), admin.Scope{Resource: "video"}, l); err != nil {
		t.Fatal(err)
	}
	return all
}

// renewal returns when to renew: when half of the time for which the slots are held has passed.
func renewal(a answer) time.Time {
	return time.Now().Add(time.Duration(a.JSON["held_for"].(float64) / 2 * float64(time.Second)))
}

func leasePath(a answer) string { return "/v1/leases/" + a.JSON["lease"].(string) }

// TestRenew: a client's slots are held for as long as the answer says, and for longer only if the client renews them, at
// any server.
func TestRenew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(afterEpoch())
		f := withSlots(t, 2, 1)
		a := f[0].must(t, 200, "POST", "/v1/acquire", oneSlot)
		held := time.Duration(a.JSON["held_for"].(float64) * float64(time.Second))
		if held < 30*time.Second || held > 60*time.Second {
			t.Fatalf("held for %s", held)
		}
		f[1].must(t, 429, "POST", "/v1/acquire", oneSlot)
		for range 200 { // more than an hour and a half; leases of other limits last 10 minutes
			time.Sleep(20 * time.Second)
			if a.JSON["expires"].(string) < time.Now().Add(30*time.Second).UTC().Format(time.RFC3339) {
				break
			}
			a = f[1].must(t, 200, "POST", leasePath(a)+"/renew", "")
			if d := time.Duration(a.JSON["held_for"].(float64) * float64(time.Second)); d < 30*time.Second {
				t.Fatalf("held for %s only", d)
			}
			f[0].must(t, 429, "POST", "/v1/acquire", oneSlot)
		}
		time.Sleep(61 * time.Second)
		f[0].must(t, 410, "POST", leasePath(a)+"/renew", "")
		b := f[0].must(t, 200, "POST", "/v1/acquire", oneSlot) // nobody renewed
		f[1].must(t, 204, "POST", leasePath(b)+"/commit", "")
		f[1].must(t, 200, "POST", "/v1/acquire", oneSlot)
	})
}

// TestRenewRefused: what cannot be renewed, and answers by which nobody could give slots back.
func TestRenewRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(afterEpoch())
		f := withSlots(t, 1, 2)[0]
		f.must(t, 400, "POST", "/v1/leases/"+f.acquire(t, "1")+"/renew", "") // it holds no slots
		f.must(t, 404, "POST", "/v1/leases/AAAA/renew", "")
		a := f.must(t, 200, "POST", "/v1/acquire", oneSlot)
		f.must(t, 400, "POST", leasePath(a)+"/renew", `{"heal":"1m"}`)
		time.Sleep(61 * time.Second)
		if a := f.must(t, 410, "POST", leasePath(a)+"/renew", ""); !strings.Contains(a.Body.String(), "a slot was not renewed in time") {
			t.Errorf("lost: %s", a.Body)
		}
		batch := fmt.Sprintf(`{"requests":[%[1]s,%[1]s],"brief":true`, oneSlot)
		for range 3 { // each would have taken all slots
			f.must(t, 400, "POST", "/v1/acquire/batch", batch+`,"atomic":true}`)
			a := f.must(t, 200, "POST", "/v1/acquire/batch", batch+`}`)
			if n := strings.Count(a.Body.String(), "needs a lease"); n < 2 {
				t.Errorf("%d of 2 requests of a brief batch are errors: %s", n, a.Body)
			}
		}
		f.must(t, 200, "POST", "/v1/acquire/batch", strings.Replace(batch, `,"brief":true`, `,"atomic":true}`, 1))
		f.must(t, 429, "POST", "/v1/acquire", oneSlot)
	})
}

// TestSlotsOfServers: clients take, renew and give back at random servers. No more than n are ever held, and no more than
// 1 % are refused that n allows.
func TestSlotsOfServers(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{2, 16} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const n = 20
				time.Sleep(afterEpoch())
				f := withSlots(t, servers, n)
				r := rand.New(rand.NewPCG(uint64(servers), 7))
				type holder struct {
					lease      answer
					server     int
					until, end time.Time
				}
				var held []*holder
				elsewhere := func(server int) int { return (server + 1 + r.IntN(servers-1)) % servers }
				asked, refused := 0, 0
				for range 4000 {
					time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
					now := time.Now()
					keep := held[:0]
					for _, h := range held {
						switch {
						case now.After(h.end):
							f[elsewhere(h.server)].must(t, 204, "POST", leasePath(h.lease)+[]string{"/commit", "/rollback"}[r.IntN(2)], "")
							continue
						case now.After(h.until):
							h.server = elsewhere(h.server)
							h.lease = f[h.server].must(t, 200, "POST", leasePath(h.lease)+"/renew", "")
							h.until = renewal(h.lease)
						}
						keep = append(keep, h)
					}
					held = keep
					at := r.IntN(servers)
					a := f[at].do(t, "POST", "/v1/acquire", oneSlot)
					switch {
					case a.Code == 200 && len(held) >= n:
						t.Fatalf("%d are held", len(held)+1)
					case a.Code == 200:
						asked++
						held = append(held, &holder{
							a, at, renewal(a),
							now.Add(time.Duration(r.IntN(24_000)) * time.Millisecond * time.Duration(1+9*(r.IntN(10)/9))),
						})
					case len(held) < n:
						asked++
						refused++
					}
				}
				t.Logf("%d servers: %d of %d refused that %d slots allow", servers, refused, asked, n)
				if asked < 1000 || refused*100 > asked {
					t.Errorf("%d of %d refused", refused, asked)
				}
			})
		})
	}
}

// TestSlotsWait: a request that waits is admitted as soon as a slot is given back at the same server, and not before.
func TestSlotsWait(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"/commit", "/rollback"} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(afterEpoch())
			f := withSlots(t, 1, 1)[0]
			a := f.must(t, 200, "POST", "/v1/acquire", oneSlot)
			var code int
			var at time.Time
			go func() {
				code = f.do(t, "POST", "/v1/acquire", `{"entity":"alice","resource":"video","wait":"20s"}`).Code
				at = time.Now()
			}()
			time.Sleep(7*time.Second + 3*time.Millisecond) // between its attempts of its own
			if synctest.Wait(); code != 0 {
				t.Fatalf("answered %d while the slot was held", code)
			}
			began := time.Now()
			f.must(t, 204, "POST", leasePath(a)+verb, "")
			if synctest.Wait(); code != 200 || !at.Equal(began) {
				t.Errorf("%s: answered %d after %s", verb, code, at.Sub(began))
			}
		})
	}
}

// TestSlotsWaitBusy: 64 clients that wait for 8 slots never hold more, and keep them busy at least 97 % of the time.
func TestSlotsWaitBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 8
		time.Sleep(afterEpoch())
		f := withSlots(t, 1, n)[0]
		end := time.Now().Add(time.Minute)
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex
			held int
			busy time.Duration
		)
		hold := func(change int) {
			mu.Lock()
			defer mu.Unlock()
			if held += change; held > n {
				t.Errorf("%d are held", held)
			}
			if until := time.Until(end); until > 0 { // counted back from the end
				busy += time.Duration(change) * until
			}
		}
		for range 64 {
			wg.Go(func() {
				for time.Now().Before(end) {
					a := f.do(t, "POST", "/v1/acquire", `{"entity":"alice","resource":"video","wait":"30s"}`)
					if a.Code != 200 {
						t.Errorf("answered %d: %s", a.Code, a.Body)
						return
					}
					hold(1)
					time.Sleep(rand.N(200 * time.Millisecond))
					hold(-1)
					if c := f.do(t, "POST", leasePath(a)+"/commit", ""); c.Code != 204 {
						t.Errorf("committed: %d: %s", c.Code, c.Body)
					}
				}
			})
		}
		wg.Wait()
		share := float64(busy) / float64(n*time.Minute)
		t.Logf("busy for %.2f %% of the time", 100*share)
		if share < 0.97 {
			t.Errorf("busy for %.1f %% of the time", 100*share)
		}
	})
}
