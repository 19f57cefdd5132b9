package s3put_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/weirlimits/weir/internal/aws/archive/s3bucket"
	"github.com/weirlimits/weir/internal/aws/archive/s3put"
	"github.com/weirlimits/weir/internal/testkit/mototest"
	"github.com/weirlimits/weir/internal/testkit/redirecttest"
)

const secret = "secret"

var authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=key/(\d{8})/eu-central-1/s3/aws4_request, SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})$`)

// verify computes the signature of a request as received, following AWS's specification.
func verify(r *http.Request, body []byte) error {
	m := authorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil {
		return fmt.Errorf("authorization %q", r.Header.Get("Authorization"))
	}
	sum := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	var headers strings.Builder
	for name := range strings.SplitSeq(m[2], ";") {
		value := r.Header.Get(name)
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		headers.WriteString(name + ":" + strings.TrimSpace(value) + "\n")
	}
	path, query, _ := strings.Cut(r.RequestURI, "?")
	canonical := strings.Join([]string{r.Method, path, query, headers.String(), m[2], sum(body)}, "\n")
	scope := m[1] + "/eu-central-1/s3/aws4_request"
	toSign := strings.Join([]string{"AWS4-HMAC-SHA256", r.Header.Get("X-Amz-Date"), scope, sum([]byte(canonical))}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{m[1], "eu-central-1", "s3", "aws4_request", toSign} {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	if hex.EncodeToString(key) != m[3] {
		return fmt.Errorf("signature %s of\n%s", m[3], canonical)
	}
	return nil
}

const name = "audit/namespace=a%2F b+ü/dt=2026-08-01/x.jsonl.gz"

// A request is signed as S3 requires, and retried while S3 is busy.
func TestSigned(t *testing.T) {
	t.Parallel()
	answers := []int{http.StatusServiceUnavailable, http.StatusOK, http.StatusForbidden}
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := verify(r, body); err != nil || r.URL.Path != "/bucket/"+name || string(body) != "content" || r.Header.Get("X-Amz-Security-Token") != "token" {
			t.Errorf("%s %s %q: %v", r.Method, r.URL, body, err)
		}
		sum := sha256.Sum256(body)
		if got := r.Header.Get("X-Amz-Checksum-Sha256"); got != base64.StdEncoding.EncodeToString(sum[:]) {
			t.Errorf("the checksum is %q: a bucket with Object Lock refuses the object", got)
		}
		w.WriteHeader(answers[min(asked, len(answers)-1)])
		asked++
	}))
	defer srv.Close()
	b := s3put.New(aws.Config{
		Region: "eu-central-1", BaseEndpoint: &srv.URL, Credentials: credentials.NewStaticCredentialsProvider("key", secret, "token"),
	}, "bucket")
	if err := b.Put(t.Context(), name, []byte("content")); err != nil || asked != 2 {
		t.Errorf("asked %d times, error %v", asked, err)
	}
	if err := b.Put(t.Context(), name, []byte("content")); err == nil || !strings.Contains(err.Error(), "403") || asked != 3 {
		t.Errorf("asked %d times, error %v", asked, err)
	}
}

// The SDK's client finds what was written.
func TestPut(t *testing.T) {
	t.Parallel()
	cfg := mototest.Config(t)
	client := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	bucket := "s3put"
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		t.Fatal(err)
	}
	if err := s3put.New(cfg, bucket).Put(t.Context(), name, []byte("content")); err != nil {
		t.Fatal(err)
	}
	got, err := s3bucket.New(client, bucket, "").Get(t.Context(), name)
	if err != nil || string(got) != "content" {
		t.Errorf("got %q, error %v", got, err)
	}
}

// A redirect is not followed, which would send it the token of temporary credentials.
func TestRedirect(t *testing.T) {
	t.Parallel()
	at := redirecttest.Start(t)
	b := s3put.New(aws.Config{
		Region: "eu-central-1", BaseEndpoint: &at, Credentials: credentials.NewStaticCredentialsProvider("key", secret, "token"),
	}, "bucket")
	if err := b.Put(t.Context(), name, []byte("content")); err == nil || !strings.Contains(err.Error(), "307") {
		t.Error(err)
	}
}
