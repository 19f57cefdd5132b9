package retry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weirlimits/weir/retry"
)

// Clients of a limited service share one Backoff. Here, the service says when to retry.
func ExampleBackoff() {
	busy := 2 // requests that are refused
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if busy--; busy >= 0 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()

	backoff := retry.Backoff{Base: 10 * time.Millisecond}
	tries := 0
	err := backoff.Do(context.Background(), func(ctx context.Context) error {
		tries++
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return &retry.Error{Err: err}
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
			after, _ := retry.ParseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
			return &retry.Error{After: after, Err: errors.New(resp.Status)}
		}
		return nil
	})
	fmt.Println(tries, err)
	// Output: 3 <nil>
}
