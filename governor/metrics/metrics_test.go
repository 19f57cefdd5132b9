package metrics_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirlimits/weir/governor"
	"github.com/weirlimits/weir/governor/metrics"
)

// answer is what DynamoDB answers to everything.
type answer string

func (a answer) Do(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body: io.NopCloser(strings.NewReader(string(a))), ContentLength: int64(len(a)), Request: r,
	}, nil
}

func put(ctx context.Context, c *dynamodb.Client) error {
	_, err := c.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: aws.String("orders"), Item: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "a"}},
	})
	return err
}

// scrape returns the metrics in Prometheus's text format.
func scrape(t *testing.T, g *governor.Governor) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(metrics.Collector(g))
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatal(rec.Code, rec.Body)
	}
	return rec.Body.String()
}

func TestCollector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := governor.New(governor.Config{
			ReadUnits: governor.Unlimited, WriteUnits: 10, Burst: time.Second,
			Tables: map[string]governor.Limits{"orders": {ReadUnits: 7, WriteUnits: 20}},
		})
		if err != nil {
			t.Fatal(err)
		}
		c := dynamodb.NewFromConfig(aws.Config{
			Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
			HTTPClient: answer(`{"ConsumedCapacity":{"TableName":"orders","CapacityUnits":15}}`),
			APIOptions: []func(*middleware.Stack) error{g.Middleware()},
		})
		for range 2 { // the second waits until the first is paid for
			if err := put(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if put(ctx, c) == nil {
			t.Fatal("not refused")
		}
		if err := g.Set(governor.Rates{WriteUnits: 12}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`# TYPE weir_governor_limit gauge`,
			`weir_governor_limit{direction="read",index="",table="orders"} 7`,
			`weir_governor_limit{direction="write",index="",table=""} 12`,
			`weir_governor_limit{direction="write",index="",table="orders"} 20`,
			`weir_governor_refused_total{direction="write",index="",table=""} 1`,
			`weir_governor_refused_total{direction="write",index="",table="orders"} 0`,
			`# TYPE weir_governor_units_total counter`,
			`weir_governor_units_total{direction="read",index="",table="orders"} 0`,
			`weir_governor_units_total{direction="write",index="",table="orders"} 30`,
			`weir_governor_available{direction="write",index="",table=""} 0`,
			`weir_governor_waited_seconds_total{direction="write",index="",table=""} 2`,
		} {
			if got := scrape(t, g); !strings.Contains(got, want+"\n") {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
	})
}

// A process in a fleet exports the fleet's figures, too; the page of the governor names every metric.
func TestFleet(t *testing.T) {
	t.Parallel()
	g, err := governor.New(governor.Config{ReadUnits: 10, WriteUnits: 10, Coordinator: &governor.Memory{}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	page, err := os.ReadFile("../../docs/aws/governor.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^# TYPE weir_governor_(\w+) `).FindAllStringSubmatch(scrape(t, g), -1)
	if len(names) != 12 {
		t.Errorf("%d metrics: %q", len(names), names)
	}
	for _, name := range names {
		if !bytes.Contains(page, []byte("`"+name[1]+"`")) {
			t.Errorf("the page does not name %s", name[1])
		}
	}
}
