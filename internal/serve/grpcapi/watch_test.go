package grpcapi_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := setup(t, grpcapi.Config{})
		stream, err := f.Watch(t.Context(), &weirv1.WatchRequest{Entity: "alice", Resource: "gpt-4"})
		if err != nil {
			t.Fatal(err)
		}
		next := func() int64 {
			w, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			return w.GetLimits()[1].GetAvailable()
		}
		if got := next(); got != 1000 {
			t.Errorf("%d of 1000", got)
		}
		time.Sleep(100 * time.Millisecond)
		f.acquire(t, 1, 700)
		began := time.Now()
		if got := next(); got < 300 || got > 316 || time.Since(began) > time.Second {
			t.Errorf("%d after 700 of 1000 were spent, %s later", got, time.Since(began))
		}
		f.stop()
		if err := f.ended(); err != nil { // watchers do not hold up the shutdown
			t.Error(err)
		}
		for err == nil {
			_, err = stream.Recv()
		}
		wants(t, err, codes.Unavailable, "retry")
	})
}

func TestWatchRefuses(t *testing.T) {
	t.Parallel()
	f := setup(t, grpcapi.Config{})
	for resource, code := range map[string]codes.Code{"other": codes.FailedPrecondition, "": codes.InvalidArgument} {
		stream, err := f.Watch(t.Context(), &weirv1.WatchRequest{Entity: "alice", Resource: resource})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		want := map[codes.Code]string{codes.FailedPrecondition: "NO_LIMITS", codes.InvalidArgument: "resource"}[code]
		wants(t, err, code, want)
	}
}
