package dynamoproxy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/governor"
	"github.com/weirlimits/weir/internal/serve/dynamoproxy"
)

// What the proxy refuses has a form that SDKs understand: they retry throttling and status 500, and nothing else.
func TestRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := govern(t, governor.Config{ReadUnits: 1, WriteUnits: 1, MaxWait: 10 * time.Second})
		reached := 0
		p := proxy(t, g, func(*http.Request, string) (*http.Response, error) {
			if reached++; reached > 1 {
				return nil, errors.New("no route")
			}
			return answer(200, `{"ConsumedCapacity":{"TableName":"other","CapacityUnits":30}}`), nil
		})
		c := client(p, nil)
		_, err := c.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
			TableName: aws.String("other"), Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberN{Value: "1"}},
		})
		if err != nil { // there is now a debt of 29 units
			t.Fatal(err)
		}
		if err := put(t.Context(), c); codeOf(err) != "ProvisionedThroughputExceededException" ||
			!strings.Contains(err.Error(), "write budget of the account") {
			t.Errorf("longer than MaxWait: %v", err)
		}
		_, err = c.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("t")}) // a page is 128 units
		if codeOf(err) != "ValidationException" || !strings.Contains(err.Error(), "never fits") {
			t.Errorf("costs more than it may wait for: %v", err)
		}
		time.Sleep(59 * time.Second) // of virtual time, in which the debt is paid
		if err := put(t.Context(), c); codeOf(err) != "InternalServerError" {
			t.Errorf("no answer: %v", err)
		}
		if reached != 2 || p.Counts() != (dynamoproxy.Counts{Passed: 1, Refused: 2, Failed: 1}) {
			t.Errorf("%d requests reached DynamoDB; counts %+v", reached, p.Counts())
		}
	})
}

// A client that gives up while its request waits costs nothing.
func TestClientGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := govern(t, governor.Config{ReadUnits: 1, WriteUnits: 1})
		p := proxy(t, g, always(200, strings.Replace(putAnswer, "1.0", "10", 1)))
		c := client(p, nil)
		if err := put(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Second) // of virtual time
			cancel()
		}()
		if err := put(ctx, c); err == nil {
			t.Error("a canceled request succeeded")
		}
		if b := g.Status().Budgets[1]; b.Consumed != 10 || b.Waiting != 0 || p.Counts().Failed != 1 {
			t.Errorf("%+v, counts %+v", b, p.Counts())
		}
	})
}

func TestClosedGovernor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := govern(t, governor.Config{ReadUnits: 1, WriteUnits: 1, Coordinator: new(governor.Memory)})
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		c := client(proxy(t, g, always(200, putAnswer)), nil)
		if err := put(t.Context(), c); codeOf(err) != "ServiceUnavailable" {
			t.Error(err)
		}
	})
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	g := govern(t, governor.Config{ReadUnits: 1, WriteUnits: 1})
	p := proxy(t, g, func(*http.Request, string) (*http.Response, error) {
		t.Error("it reached DynamoDB")
		return nil, errors.New("no")
	})
	const ours = "DynamoDB_20120810."
	for _, tt := range []struct {
		method, path, target, body, want string
		status                           int
	}{
		{"POST", "/", ours + "GetItem", `{"TableName":`, "SerializationException", 400},
		{"POST", "/", ours + "GetItem", `[]`, "SerializationException", 400},
		{"POST", "/", ours + "GetItem", `{"TableName":"t","TableName":"u"}`, "SerializationException", 400},
		{"POST", "/", ours + "Scan", `{"Limit":"5"}`, "SerializationException", 400},
		{"POST", "/", ours + "PutItem", `{"Item":{"pk":"text"}}`, "SerializationException", 400},
		{"POST", "/", ours + "PutItem", `{"Item":"` + strings.Repeat("x", 33<<20) + `"}`, "ValidationException", 413},
		{"POST", "/", "DynamoDBStreams_20120810.GetRecords", `{}`, "UnknownOperationException", 400},
		{"POST", "/", "", `{}`, "UnknownOperationException", 400},
		{"POST", "/service/DynamoDB_20120810/operation/GetItem", ours + "GetItem", `{}`, "UnknownOperationException", 400},
		{"PUT", "/", ours + "GetItem", `{}`, "UnknownOperationException", 400},
		{"GET", "/", "", "", "healthy: dynamodb.example", 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, strings.NewReader(tt.body))
		r.Header.Set("X-Amz-Target", tt.target)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) ||
			w.Code != 200 && w.Header().Get("X-Amz-Crc32") != sum(w.Body.Bytes()) {
			t.Errorf("%s %s %s: %d %s", tt.method, tt.path, tt.target, w.Code, w.Body)
		}
	}
}

// A request that was not sent, for lack of the proxy's own credentials or because nobody accepts a connection, costs
// nothing: its estimate is given back.
func TestUnsent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		keys aws.CredentialsProviderFunc
		sent error // of the connection
	}{
		"no credentials": {func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errors.New("expired") }, nil},
		"no connection": {func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "own", SecretAccessKey: "own-secret"}, nil
		}, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := govern(t, governor.Config{Tables: map[string]governor.Limits{"t": {ReadUnits: 10, WriteUnits: 10}}})
				before := g.Status().Budgets
				u := upstream(func(*http.Request, string) (*http.Response, error) {
					if tt.sent == nil {
						t.Error("it was sent")
					}
					return nil, tt.sent
				})
				c := client(proxy(t, g, u, func(cfg *dynamoproxy.Config) { cfg.Credentials = tt.keys }), nil)
				for range 100 { // far more than the budget has room for
					if err := put(t.Context(), c); err == nil {
						t.Fatal("it succeeded")
					}
				}
				after := g.Status().Budgets
				for i := range before {
					if before[i].Available != after[i].Available || after[i].Consumed != 0 {
						t.Errorf("%+v, before\n%+v", after[i], before[i])
					}
				}
			})
		})
	}
}

// A hundred scans at once never consume more than the rate of the budget in the time since the start and two seconds,
// and what is in flight: a page, since none is sent before the one before it is paid.
func TestScansAtOnce(t *testing.T) {
	t.Parallel()
	const rate = 10.0
	for _, pages := range [][]float64{{128}, {0.5}, {5, 128, 0.5}} {
		t.Run(fmt.Sprint(pages), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := govern(t, governor.Config{
					Tables: map[string]governor.Limits{"t": {ReadUnits: rate, WriteUnits: rate}}, MaxWait: 24 * time.Hour,
				})
				var mu sync.Mutex
				began, n, consumed, flying := time.Now(), 0, 0.0, 0.0
				u := upstream(func(*http.Request, string) (*http.Response, error) {
					mu.Lock()
					cost := pages[n%len(pages)]
					n++
					flying += cost
					mu.Unlock()
					time.Sleep(20 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					consumed += cost
					if most := rate*(time.Since(began).Seconds()+2) + flying; consumed > most {
						t.Errorf("%v units after %s, at most %v", consumed, time.Since(began), most)
					}
					flying -= cost
					return answer(http.StatusOK, fmt.Sprintf(`{"ConsumedCapacity":{"TableName":"t","CapacityUnits":%v}}`, cost)), nil
				})
				c := client(proxy(t, g, u), nil)
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() {
						for range 3 {
							if _, err := c.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("t")}); err != nil {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
				took := time.Since(began).Seconds()
				if n != 300 || consumed > rate*(took+2)+128 || consumed < rate*took/2 {
					t.Errorf("%d scans, %v units in %v s", n, consumed, took)
				}
			})
		})
	}
}
