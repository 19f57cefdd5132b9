package rates_test

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/weirlimits/weir/governor/s3coord"
	"github.com/weirlimits/weir/internal/fleet/rates"
)

// Three workers share through S3, with clocks that agree with its clock or are a minute off.
func TestFleetInS3(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{0, time.Minute, -time.Minute} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithTimeSource(gofakes3.FixedTimeSource(time.Now().Add(skew)))).Server())
			t.Cleanup(srv.Close)
			client := s3Client(t, srv.URL)
			if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucketName)}); err != nil {
				t.Fatal(err)
			}
			place, err := s3coord.New(client, bucketName, "/jobs/nightly/")
			if err != nil {
				t.Fatal(err)
			}
			type grant struct {
				worker int
				share  int64
			}
			grants := make(chan grant, 1000)
			var members []*rates.Worker
			for i := range 3 {
				cfg := config(place)
				cfg.Refresh = 500 * time.Millisecond // a lease of 2 s, also on a busy machine
				cfg.Granted = func(shares []int64) { grants <- grant{i, shares[0]} }
				m, err := rates.Join(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				members = append(members, m)
			}
			shares := make(map[int]int64)
			for patience := time.After(time.Minute); shares[0] != 333 || shares[1] != 333 || shares[2] != 333; { //nolint:forbidigo // the test ends soon
				select {
				case g := <-grants:
					shares[g.worker] = g.share
				case <-patience: // real time: S3 has no other clock
					t.Fatalf("shares are %v", shares)
				}
			}
			leaders := 0
			for _, m := range members {
				if s := m.Status(); s.Leads {
					leaders++
				}
			}
			if leaders != 1 {
				t.Errorf("%d lead", leaders)
			}
			for _, m := range members {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}
			if left, err := place.List(t.Context(), "worker/"); err != nil || len(left) != 0 {
				t.Errorf("%d reports are left, %v", len(left), err)
			}
		})
	}
}
