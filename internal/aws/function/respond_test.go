package function_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimits/weir"
)

// network answers requests in place of the real network.
type network struct {
	asked     []string // hosts
	redirects []string // where the first requests are redirected to
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.asked = append(n.asked, r.URL.Host)
	resp := &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}, Request: r}
	if len(n.redirects) > 0 {
		resp.StatusCode = http.StatusTemporaryRedirect
		resp.Header.Set("Location", n.redirects[0])
		n.redirects = n.redirects[1:]
	}
	return resp, nil
}

// answerTo creates a resource whose response goes to the given address. done reports whether the function did any work.
func answerTo(t *testing.T, address string, n *network) (done bool, err error) {
	t.Helper()
	b := setup(t)
	b.Provisioner.Anywhere, b.Provisioner.Client = false, &http.Client{Transport: n}
	open := b.Provisioner.Open
	b.Provisioner.Open = func(ctx context.Context) (*weir.Limiter, error) {
		done = true
		return open(ctx)
	}
	ev := b.event("Create", "1", properties(t, second))
	ev.ResponseURL = address
	_, err = b.Handle(t.Context(), ev.encode(t))
	return done, err
}

// Responses go only to AWS, in any of its regions and partitions, over https.
func TestAnswersToAWS(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"cloudformation-custom-resource-response-useast1.s3.amazonaws.com", "x.s3.eu-central-1.amazonaws.com:443",
		"x.s3.us-gov-west-1.AmazonAWS.com", "x.s3.cn-north-1.amazonaws.com.cn", "x.s3.eusc-de-east-1.amazonaws.eu",
	} {
		n := &network{}
		if done, err := answerTo(t, "https://"+host+"/a?secret", n); err != nil || !done || !slices.Equal(n.asked, []string{host}) {
			t.Errorf("%s: done %t, asked %q, %v", host, done, n.asked, err)
		}
	}
}

// Anyone who may invoke the function can name any address. Nothing is sent to an address outside AWS, no work is done, and
// the error does not reveal the address.
func TestAnswersToNobodyElse(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"", "secret", "https://", "://secret", "https://x.s3.amazonaws.com/%zz?secret", "file:///etc/secret",
		"http://x.s3.amazonaws.com/secret", "https://169.254.169.254/secret", "https://[fd00:ec2::254]/secret", "https://localhost/secret",
		"https://evil.example/secret", "https://x.s3.amazonaws.com.evil.example/secret", "https://evilamazonaws.com/secret",
		"https://evil.example/x.s3.amazonaws.com?secret", "https://amazonaws.com/secret", "https://x.s3.amazonaws.com:8443/secret",
		"https://x.s3.amazonaws.com@evil.example/secret", "https://secret@x.s3.amazonaws.com/", "https://evil.example#.amazonaws.com/secret",
	} {
		n := &network{}
		done, err := answerTo(t, address, n)
		if err == nil || done || len(n.asked) > 0 || !strings.Contains(err.Error(), "responses go only to https addresses of AWS") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: done %t, asked %q, %v", address, done, n.asked, err)
		}
	}
}

// A response that is redirected stays within AWS.
func TestAnswersSentOn(t *testing.T) {
	t.Parallel()
	const first, next = "a.s3.amazonaws.com", "a.s3.us-west-2.amazonaws.com"
	n := &network{redirects: []string{"https://" + next + "/a?secret"}}
	if _, err := answerTo(t, "https://"+first+"/a?secret", n); err != nil || !slices.Equal(n.asked, []string{first, next}) {
		t.Errorf("asked %q, %v", n.asked, err)
	}
	n = &network{redirects: []string{"https://evil.example/secret"}}
	_, err := answerTo(t, "https://"+first+"/a?secret", n)
	if err == nil || !strings.Contains(err.Error(), `"evil.example"`) || strings.Contains(err.Error(), "secret") || !slices.Equal(n.asked, []string{first}) {
		t.Errorf("asked %q, %v", n.asked, err)
	}
}
