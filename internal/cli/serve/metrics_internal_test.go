package serve

import (
	"context"
	"net/http"
	"testing"

	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/internal/testkit/porttest"
)

// A web page whose host name resolves to this machine cannot read the metrics.
func TestMetricsHost(t *testing.T) {
	t.Parallel()
	f := metricsFlags{Address: "127.0.0.1:" + porttest.Free(t), counts: newMetrics(t, metrics.Config{})}
	var s serving
	if err := f.listen(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- together(ctx, s.tasks) }()
	for host, want := range map[string]int{"": 200, "localhost:1": 200, "evil.example": http.StatusMisdirectedRequest} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.Address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host, r.Close = host, true
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%q: got %d, want %d", host, res.StatusCode, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
