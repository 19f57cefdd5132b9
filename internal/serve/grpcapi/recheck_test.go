package grpcapi_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
)

// TestRecheck ends streams and waits within 30 s after their token was revoked, has expired or was changed, and leaves
// those of others alone.
func TestRecheck(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, path string, e auth.Entry){
		"revoked": func(t *testing.T, path string, _ auth.Entry) {
			t.Helper()
			if err := auth.Revoke(path, "app"); err != nil {
				t.Fatal(err)
			}
		},
		"expired": func(*testing.T, string, auth.Entry) {},
		"changed": func(t *testing.T, path string, e auth.Entry) {
			t.Helper()
			e.Entities = []string{"bob"}
			if err := auth.Revoke(path, "app"); err != nil {
				t.Fatal(err)
			}
			if err := auth.Add(path, e); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "tokens.yaml")
				e := auth.Entry{Name: "app", Roles: []auth.Role{auth.Acquire, auth.Read}}
				if name == "expired" {
					e.Expires = time.Now().Add(40 * time.Second)
				}
				token, e, err := auth.NewEntry(e)
				if err == nil {
					err = auth.Add(path, e)
				}
				other, kept, err2 := auth.NewEntry(auth.Entry{Name: "other", Roles: []auth.Role{auth.Read}})
				if err2 == nil {
					err2 = auth.Add(path, kept)
				}
				if err != nil || err2 != nil {
					t.Fatal(err, err2)
				}
				book, err := auth.Open(path, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				f := setup(t, grpcapi.Config{Config: decide.Config{Book: book}})
				ended := make(chan error, 3)
				ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
				open := func(end chan<- error, token string) {
					ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
					stream, err := f.Watch(ctx, &weirv1.WatchRequest{Entity: "alice", Resource: "gpt-4"})
					if err != nil {
						t.Fatal(err)
					}
					go func() {
						for err == nil {
							_, err = stream.Recv()
						}
						end <- err
					}()
				}
				lasts := make(chan error, 1)
				open(lasts, other)
				time.Sleep(35 * time.Second) // checks once while nothing has changed
				open(ended, token)
				reflection, err := reflectpb.NewServerReflectionClient(f.conn).ServerReflectionInfo(ctx)
				if err == nil {
					err = reflection.Send(&reflectpb.ServerReflectionRequest{MessageRequest: &reflectpb.ServerReflectionRequest_ListServices{}})
				}
				if err == nil {
					_, err = reflection.Recv()
				}
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					_, err := reflection.Recv()
					ended <- err
				}()
				f.acquireAs(t, token, 10)
				go func() { // waits for a minute, until ten have been issued again
					_, err := f.Acquire(ctx, &weirv1.AcquireRequest{
						Entity: "alice", Resource: "gpt-4", Tokens: map[string]int64{"rpm": 10}, Wait: durationpb.New(time.Minute),
					})
					ended <- err
				}()
				time.Sleep(5 * time.Second)
				spoil(t, path, e)
				began := time.Now()
				for range 3 {
					late := time.NewTimer(auth.Recheck - time.Since(began) + time.Millisecond)
					select {
					case err := <-ended:
						wants(t, err, codes.Unauthenticated, "")
					case <-late.C:
						t.Fatal("still open")
					}
				}
				select {
				case err := <-lasts:
					t.Errorf("the stream of another token has ended: %v", err)
				default:
				}
			})
		})
	}
}

// acquireAs spends rpm of alice with a token.
func (f *fixture) acquireAs(t *testing.T, token string, rpm int64) {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	if a, err := f.Acquire(ctx, alice(rpm, 0)); err != nil || !a.GetAllowed() {
		t.Fatalf("got %v, %v", a, err)
	}
}
