package replay_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/replay"
)

func parse(t testing.TB, text string) weir.Limit {
	t.Helper()
	l, err := weir.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A quota admits its amount in each of its windows, by the log's time. A balance is left out, and the report has why.
func TestQuota(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	months := map[string]int{} // requests of a client in a month
	at := time.Date(2023, time.October, 30, 0, 0, 0, 0, time.UTC)
	for i := range 4000 {
		at = at.Add(time.Duration(i%7) * 11 * time.Minute)
		client := fmt.Sprint("client-", i%3)
		fmt.Fprintf(&log, `{"time":%q,"client":%q}`+"\n", at.Format(time.RFC3339), client)
		months[client+at.In(berlin).Format("2006-01")]++
	}
	const amount = 400
	want := 0
	for _, n := range months {
		want += min(n, amount)
	}
	l := mustRead(t, log.Bytes(), replay.ReadConfig{})
	limits := []weir.Limit{parse(t, "usd:400/month@Europe/Berlin"), parse(t, "credits:balance")}
	r := mustRun(t, l, replay.Config{Limits: limits})
	if r.Admitted != want || want == 4000 || len(months) < 10 {
		t.Errorf("%d of %d admitted, want %d", r.Admitted, r.Requests, want)
	}
	if len(r.Limits) != 1 || len(r.Needed) != 2 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "balances are left out") {
		t.Errorf("limits %v, needed %+v, notes %q", r.Limits, r.Needed, r.Notes)
	}
	for _, n := range r.Needed { // each is enough, and the next smaller one is not
		if n.Limit == nil || n.Limit.Window != limits[0].Window {
			t.Fatalf("needed %+v", n)
		}
		for _, amount := range []int64{n.Limit.Amount, n.Limit.Amount - 1} {
			sum := 0
			for _, n := range months {
				sum += min(n, int(amount))
			}
			if enough := sum*1000 >= 4000*int(n.Percent*10+0.5); enough != (amount == n.Limit.Amount) {
				t.Errorf("%g %%: %d of 4000 with %d", n.Percent, sum, amount)
			}
		}
	}
	var bad *weir.ConfigError
	if _, err := replay.Run(t.Context(), l, replay.Config{Limits: limits[1:]}); !errors.As(err, &bad) || bad.Field != "limits" {
		t.Errorf("a balance alone: %v", err)
	}
}
