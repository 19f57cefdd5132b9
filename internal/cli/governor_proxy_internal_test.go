package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/testkit/porttest"
)

// With a key and TLS, the proxy may listen for other machines, and serves who has the key. When it is interrupted, it
// finishes what is in progress.
//
//nolint:paralleltest // it sets the environment, from which AWS's SDK configures itself
func TestGovernorProxyTLS(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=own/") {
			t.Errorf("signed %s", r.Header.Get("Authorization"))
		}
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "DescribeLimits") {
			arrived <- struct{}{}
			<-answer
		}
		_, _ = io.WriteString(w, `{"TableNames":["orders"]}`)
	}))
	defer upstream.Close()
	dir := t.TempDir()
	ca, key := pair(t, dir, "ca", nil, nil)
	pair(t, dir, "server", ca, key)
	secret := filepath.Join(dir, "key")
	if err := os.WriteFile(secret, []byte("job:the-secret-of-the-job\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "own", "AWS_SECRET_ACCESS_KEY": "own", "AWS_SESSION_TOKEN": "",
		"AWS_ENDPOINT_URL_DYNAMODB": upstream.URL, "AWS_PROFILE": "", "AWS_CONFIG_FILE": filepath.Join(dir, "none"),
	} {
		t.Setenv(name, value)
	}
	port := porttest.Free(t)
	ctx, stop := context.WithCancel(t.Context())
	out, printed := io.Pipe()
	a := kit.New(strings.NewReader(""), printed, io.Discard, nil)
	r := root(a)
	r.SetArgs([]string{
		"governor", "proxy", "--budget", "10:10", "--listen", "0.0.0.0:" + port, "--access-key-file", secret,
		"--tls-cert", filepath.Join(dir, "server.pem"), "--tls-key", filepath.Join(dir, "server-key.pem"),
	})
	ended := make(chan int, 1)
	go func() {
		ended <- a.Execute(ctx, r)
		_ = printed.Close()
	}()
	first := make([]byte, 16)
	if _, err := io.ReadFull(out, first); err != nil || string(first) != "serving https://" {
		t.Fatalf("printed %q: %v", first, err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	roots := x509.NewCertPool()
	if text, err := os.ReadFile(filepath.Join(dir, "ca.pem")); err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := func(secret string) *dynamodb.Client {
		return dynamodb.New(dynamodb.Options{
			BaseEndpoint: aws.String("https://127.0.0.1:" + port), Region: "eu-west-1", Retryer: aws.NopRetryer{},
			Credentials: credentials.NewStaticCredentialsProvider("job", secret, ""), HTTPClient: &http.Client{Transport: transport},
		})
	}
	for secret, want := range map[string]string{"the-secret-of-the-job": "", "another": "InvalidSignatureException"} {
		got, err := client(secret).ListTables(t.Context(), &dynamodb.ListTablesInput{})
		if want == "" && (err != nil || len(got.TableNames) != 1) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", secret, err)
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := client("the-secret-of-the-job").DescribeLimits(t.Context(), &dynamodb.DescribeLimitsInput{})
		done <- err
	}()
	<-arrived
	stop()
	for { // until it accepts no connections
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			break
		}
		_ = c.Close()
	}
	close(answer)
	if err := <-done; err != nil {
		t.Errorf("the request in progress: %v", err)
	}
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}
