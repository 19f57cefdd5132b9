package grpcapi_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/store/memory"
)

// TestOneTokenTakesNotAll checks that however much one token requests at once, another's requests and streams are
// accepted.
func TestOneTokenTakesNotAll(t *testing.T) {
	t.Parallel()
	var entries []auth.Entry
	tokens := make(map[string]string)
	for _, name := range []string{"hog", "other"} {
		token, e, err := auth.NewEntry(auth.Entry{Name: name, Roles: []auth.Role{auth.Admin}, Namespaces: []string{"default"}})
		if err != nil {
			t.Fatal(err)
		}
		tokens[name], entries = token, append(entries, e)
	}
	book := openBook(t, entries...)
	bubble(t, func(t *testing.T) {
		st := &stuck{Store: memory.New(nil), entered: make(chan struct{}, 9), release: make(chan struct{})}
		f := over(t, st, grpcapi.Config{Config: decide.Config{MaxInflight: 4, Book: book}})
		as := func(name string) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+tokens[name])
		}
		look := func(name string) error {
			_, err := f.Available(as(name), &weirv1.AvailableRequest{Entity: "alice", Resource: "gpt-4"})
			return err
		}
		watch := func(name string) error {
			stream, err := f.Watch(as(name), &weirv1.WatchRequest{Entity: "alice", Resource: "gpt-4"})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}
		sent := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := f.Acquire(as("hog"), alice(1, 1))
				sent <- err
			}()
			<-st.entered
			if err := watch("hog"); err != nil {
				t.Error(err)
			}
		}
		for what, ask := range map[string]func(string) error{"request": look, "stream": watch} {
			if err := ask("hog"); status.Code(err) != codes.Unavailable {
				t.Errorf("a fourth %s of one token: got %v", what, err)
			}
			if err := ask("other"); err != nil {
				t.Errorf("a %s of another: %v", what, err)
			}
		}
		close(st.release)
		for range 3 {
			if err := <-sent; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestUnauthenticatedTakeNotAll checks that the health service is open to everyone, but that callers without a token leave
// streams for those with one.
func TestUnauthenticatedTakeNotAll(t *testing.T) {
	t.Parallel()
	token, e, err := auth.NewEntry(auth.Entry{Name: "app", Roles: []auth.Role{auth.Read}, Namespaces: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	book := openBook(t, e)
	bubble(t, func(t *testing.T) {
		f := over(t, memory.New(nil), grpcapi.Config{Config: decide.Config{MaxInflight: 4, Book: book}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		health := healthpb.NewHealthClient(f.conn)
		for n := range 5 {
			probe, err := health.Watch(ctx, &healthpb.HealthCheckRequest{})
			if err == nil {
				_, err = probe.Recv()
			}
			if n < 3 && err != nil || n >= 3 && status.Code(err) != codes.Unavailable {
				t.Errorf("probe %d of 4 places: got %v", n, err)
			}
		}
		stream, err := f.Watch(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), &weirv1.WatchRequest{Entity: "alice", Resource: "gpt-4"})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Errorf("who has a token: %v", err)
		}
	})
}
