package dynamoproxy

import (
	"crypto/hmac"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	algorithm = "AWS4-HMAC-SHA256 "
	stamp     = "20060102T150405Z"
	// maxSkew is how old a signature may be, as for AWS.
	maxSkew = 5 * time.Minute
)

// signature is that of a request.
type signature struct {
	region  string
	at      time.Time
	headers []string // that it covers, beside the body
	text    string
}

// signatureOf returns the signature of a request, before its body is received. It refuses one that is not of the
// clients' key, or expired; nil if clients have no key.
func (p *Proxy) signatureOf(r *http.Request) (*signature, error) {
	if p.cfg.Client.AccessKeyID == "" {
		return nil, nil //nolint:nilnil // see above
	}
	rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), algorithm)
	if !ok {
		return nil, &fault{http.StatusBadRequest, "MissingAuthenticationTokenException", "the request is not signed"}
	}
	fields := make(map[string]string)
	for part := range strings.SplitSeq(rest, ",") {
		name, v, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = v
	}
	scope := strings.Split(fields["Credential"], "/") // key, day, region, service, "aws4_request"
	if len(scope) != 5 || scope[0] != p.cfg.Client.AccessKeyID || scope[3] != service {
		return nil, &fault{
			http.StatusBadRequest, "UnrecognizedClientException",
			"the access key is not the one that the proxy was given for its clients",
		}
	}
	s := &signature{
		region: scope[2], headers: strings.Split(fields["SignedHeaders"], ";"), text: fields["Signature"],
	}
	var err error
	s.at, err = time.Parse(stamp, r.Header.Get("X-Amz-Date"))
	if err != nil || !slices.Contains(s.headers, "x-amz-target") {
		return nil, invalidSignature("it must cover x-amz-date and x-amz-target")
	}
	if age := time.Since(s.at); age > maxSkew || age < -maxSkew {
		return nil, invalidSignature("it expired, or the clocks differ: it is of " + r.Header.Get("X-Amz-Date"))
	}
	return s, nil
}

// verify refuses a request that was not signed with the clients' key. It signs what the signature covers again. The
// secret itself never travels.
func (p *Proxy) verify(s *signature, r *http.Request, body []byte) error {
	if s == nil {
		return nil
	}
	at := *r.URL
	at.Host = r.Host
	again := &http.Request{Method: r.Method, URL: &at, Host: r.Host, Header: make(http.Header)}
	for _, name := range s.headers {
		switch name = http.CanonicalHeaderKey(name); name {
		case "Host":
		case "Content-Length":
			again.ContentLength = r.ContentLength
		default:
			again.Header[name] = r.Header[name]
		}
	}
	if err := p.signer.SignHTTP(r.Context(), p.cfg.Client, again, hash(body), service, s.region, s.at); err != nil {
		return err
	}
	_, want, _ := strings.Cut(again.Header.Get("Authorization"), "Signature=")
	if !hmac.Equal([]byte(s.text), []byte(want)) {
		return invalidSignature("it does not match: check the secret key")
	}
	return nil
}

func invalidSignature(why string) error {
	return &fault{http.StatusBadRequest, "InvalidSignatureException", "the signature is invalid: " + why}
}
