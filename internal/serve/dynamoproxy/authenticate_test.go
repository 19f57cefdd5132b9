package dynamoproxy_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/weirlimits/weir/governor"
	"github.com/weirlimits/weir/internal/serve/dynamoproxy"
)

func TestClientKey(t *testing.T) {
	t.Parallel()
	key := func(id, secret string) func(*dynamoproxy.Config) {
		return func(c *dynamoproxy.Config) { c.Client = aws.Credentials{AccessKeyID: id, SecretAccessKey: secret} }
	}
	for name, tt := range map[string]struct {
		key    func(*dynamoproxy.Config)
		change func(*http.Request)
		want   string
	}{
		"right":        {key("client", "client-secret"), nil, ""},
		"other secret": {key("client", "another-secret"), nil, "InvalidSignatureException"},
		"other key":    {key("somebody", "client-secret"), nil, "UnrecognizedClientException"},
		"not signed":   {nil, func(r *http.Request) { r.Header.Del("Authorization") }, "MissingAuthenticationTokenException"},
		"other target": {nil, func(r *http.Request) { r.Header.Set("X-Amz-Target", "DynamoDB_20120810.DeleteItem") }, "InvalidSignatureException"},
		"other host":   {nil, func(r *http.Request) { r.Host = "elsewhere" }, "InvalidSignatureException"},
		"other time": {nil, func(r *http.Request) {
			r.Header.Set("X-Amz-Date", time.Now().Add(time.Second).UTC().Format("20060102T150405Z"))
		}, "InvalidSignatureException"},
		"old": {nil, func(r *http.Request) { r.Header.Set("X-Amz-Date", "20200101T000000Z") }, "InvalidSignatureException"},
		"other service": {nil, func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "/dynamodb/", "/s3/", 1))
		}, "UnrecognizedClientException"},
		"no target": {nil, func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), ";x-amz-target", "", 1))
		}, "InvalidSignatureException"},
		"other body": {nil, func(r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(bytes.Replace(body, []byte(`"x"`), []byte(`"y"`), 1)))
		}, "InvalidSignatureException"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.key == nil {
				tt.key = key("client", "client-secret")
			}
			passed := 0
			p := proxy(t, govern(t, governor.Config{ReadUnits: 10, WriteUnits: 10}), func(*http.Request, string) (*http.Response, error) {
				passed++
				return answer(200, putAnswer), nil
			}, tt.key)
			err := put(t.Context(), client(p, tt.change))
			if tt.want == "" && (err != nil || passed != 1) || tt.want != "" && (codeOf(err) != tt.want || passed != 0) {
				t.Errorf("%v, passed %d", err, passed)
			}
		})
	}
}
