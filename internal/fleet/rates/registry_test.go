package rates_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"

	"github.com/weirlimits/weir/governor/s3coord"
	"github.com/weirlimits/weir/governor/storecoord"
	"github.com/weirlimits/weir/internal/fleet"
	"github.com/weirlimits/weir/internal/fleet/rates"
	"github.com/weirlimits/weir/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// coordinators are the implementations that every test of this file runs on.
func coordinators(t *testing.T) map[string]fleet.Registry {
	inStore, err := storecoord.New(memory.New(nil), "nightly")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]fleet.Registry{"memory": &fleet.Memory{}, "store": inStore, "s3": inS3(t, fakeS3(t), "jobs/nightly")}
	// Another S3 implementation, such as moto, as a cross-check. It must not have a bucket named weir-fleet.
	if url := os.Getenv("WEIR_TEST_S3"); url != "" {
		all["server"] = inS3(t, url, "jobs/"+t.Name())
	}
	return all
}

func fakeS3(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	t.Cleanup(srv.Close)
	return srv.URL
}

const bucketName = "weir-fleet"

func inS3(t *testing.T, url, prefix string) *s3coord.Coordinator {
	t.Helper()
	client := s3Client(t, url)
	_, _ = client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucketName)}) // it may exist already
	c, err := s3coord.New(client, bucketName, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func s3Client(t *testing.T, url string) *s3.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return s3.NewFromConfig(aws.Config{
		Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), BaseEndpoint: &url,
	}, func(o *s3.Options) { o.UsePathStyle = true; o.HTTPClient = &http.Client{Transport: transport} })
}

func TestCoordinators(t *testing.T) {
	t.Parallel()
	for name, c := range coordinators(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			none, err := c.Get(ctx, "grants")
			if err != nil || none.Version != "" {
				t.Fatalf("what is not there: %+v, %v", none, err)
			}
			v1, err := c.Put(ctx, "grants", []byte("1"), "")
			if err != nil || v1 == "" {
				t.Fatalf("create: %q, %v", v1, err)
			}
			if _, err := c.Put(ctx, "grants", []byte("x"), ""); !errors.Is(err, fleet.ErrConflict) {
				t.Errorf("create what is there: %v", err)
			}
			v2, err := c.Put(ctx, "grants", []byte("2"), v1)
			if err != nil || v2 == v1 {
				t.Fatalf("replace: %q after %q, %v", v2, v1, err)
			}
			if _, err := c.Put(ctx, "grants", []byte("x"), v1); !errors.Is(err, fleet.ErrConflict) {
				t.Errorf("replace what was replaced: %v", err)
			}
			if _, err := c.Put(ctx, "worker/gone", []byte("x"), v1); !errors.Is(err, fleet.ErrConflict) {
				t.Errorf("replace what is not there: %v", err)
			}
			got, err := c.Get(ctx, "grants")
			if err != nil || string(got.Value) != "2" || got.Version != v2 || got.Name != "grants" {
				t.Errorf("got %+v, %v", got, err)
			}
			for i := range 20 {
				if _, err := c.Put(ctx, fmt.Sprintf("worker/%d", i), []byte{byte(i)}, ""); err != nil {
					t.Fatal(err)
				}
			}
			list, err := c.List(ctx, "worker/")
			if err != nil || len(list) != 20 || slices.ContainsFunc(list, func(r fleet.Record) bool {
				return !strings.HasPrefix(r.Name, "worker/") || r.Version == "" || len(r.Value) != 1
			}) {
				t.Errorf("listed %+v, %v", list, err)
			}
			for range 2 { // the second finds nothing
				if err := c.Delete(ctx, "worker/7"); err != nil {
					t.Error(err)
				}
			}
			if list, err = c.List(ctx, "worker/"); err != nil || len(list) != 19 {
				t.Errorf("%d listed, %v", len(list), err)
			}
		})
	}
}

// If many write at once on the same condition, one succeeds.
func TestOneWriterWins(t *testing.T) {
	t.Parallel()
	for name, c := range coordinators(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			version := ""
			for round := range 3 {
				var won atomic.Int32
				var next atomic.Pointer[string]
				var wg sync.WaitGroup
				for i := range 16 {
					wg.Go(func() {
						v, err := c.Put(t.Context(), "race", []byte{byte(round), byte(i)}, version)
						switch {
						case err == nil:
							won.Add(1)
							next.Store(&v)
						case !errors.Is(err, fleet.ErrConflict):
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if won.Load() != 1 {
					t.Fatalf("%d won", won.Load())
				}
				version = *next.Load()
			}
		})
	}
}

func TestPlacesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	missing, err := s3coord.New(s3Client(t, fakeS3(t)), "no-such-bucket", "jobs")
	if err != nil {
		t.Fatal(err)
	}
	closed := memory.New(nil)
	_ = closed.Close()
	inStore, err := storecoord.New(closed, "nightly")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]fleet.Registry{"bucket": missing, "store": inStore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := rates.Join(t.Context(), config(c))
			if join, ok := errors.AsType[*fleet.JoinError](err); !ok || join.Op != "write report" {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := s3coord.New(nil, "", "jobs"); err == nil {
		t.Error("a bucket without a name was taken")
	}
	for _, bad := range []string{"", "a/b", "a b"} {
		if _, err := storecoord.New(closed, bad); err == nil {
			t.Errorf("the name %q was taken", bad)
		}
	}
}

func config(c fleet.Registry) rates.Config {
	return rates.Config{
		Registry: c, Budgets: []rates.Budget{{Name: "b", Limit: 1000}},
		Demand: func(int) (int64, int64) { return -1, 0 }, Granted: func([]int64) {},
	}
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*rates.Config){
		"registry":           func(c *rates.Config) { c.Registry = nil },
		"refresh":            func(c *rates.Config) { c.Refresh = 1 },
		"forget":             func(c *rates.Config) { c.Forget = 1 },
		"budget b":           func(c *rates.Config) { c.Budgets = []rates.Budget{{Name: "b"}} },
		"demand and granted": func(c *rates.Config) { c.Demand = nil },
		"worker":             func(c *rates.Config) { c.Worker = "a/b" },
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			cfg := config(&fleet.Memory{})
			change(&cfg)
			_, err := rates.Join(context.Background(), cfg)
			if bad, ok := errors.AsType[*rates.ConfigError](err); !ok || bad.Field != field {
				t.Errorf("got %v", err)
			}
		})
	}
}
