package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"
	"sync"
	"time"
)

const (
	amzTime   = "20060102T150405Z"
	algorithm = "AWS4-HMAC-SHA256"
	service   = "DynamoDB_20120810."
	content   = "application/x-amz-json-1.0"
	encoding  = "identity"

	signedBefore = "accept-encoding;amz-sdk-invocation-id;amz-sdk-request;content-length;content-type;host;x-amz-date;"
	signedToken  = "x-amz-security-token;"
	signedAfter  = "x-amz-target"
)

// signingKey makes the signatures of one day.
type signingKey struct {
	day  string
	macs sync.Pool // of hash.Hash that have read the key
}

func (r *route) keyOf(day string) *signingKey {
	if k := r.key.Load(); k != nil && k.day == day {
		return k
	}
	key := []byte("AWS4" + r.creds.SecretAccessKey)
	for _, part := range []string{day, r.region, r.service, "aws4_request"} {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	k := &signingKey{day: day, macs: sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
	r.key.Store(k)
	return k
}

// append appends the signature of a text.
func (k *signingKey) append(to, text []byte) []byte {
	h := k.macs.Get().(hash.Hash)
	defer k.macs.Put(h)
	h.Reset()
	h.Write(text)
	return h.Sum(to)
}

// appendHead appends the head of a request with a given body, signed at a given time with AWS Signature Version 4.
func (r *route) appendHead(b, body []byte, at time.Time, id, trace string) []byte {
	var dateSpace [len(amzTime)]byte
	date := string(at.UTC().AppendFormat(dateSpace[:0], amzTime))
	length := strconv.Itoa(len(body))
	token := r.creds.SessionToken

	b = append(append(b, "POST / HTTP/1.1\r\nHost: "...), r.host...)
	b = append(append(b, "\r\nUser-Agent: "...), r.agent...)
	b = append(append(b, "\r\nContent-Length: "...), length...)
	b = append(b, "\r\nAccept-Encoding: "+encoding+"\r\nAmz-Sdk-Invocation-Id: "...)
	b = append(append(append(b, id...), "\r\nAmz-Sdk-Request: "...), r.attempt...)
	b = append(append(b, "\r\nContent-Type: "+content+"\r\nX-Amz-Date: "...), date...)
	if token != "" {
		b = append(append(b, "\r\nX-Amz-Security-Token: "...), token...)
	}
	if trace != "" {
		b = append(append(b, "\r\nX-Amzn-Trace-Id: "...), trace...)
	}
	b = append(append(b, "\r\nX-Amz-Target: "+service...), r.target...)
	b = append(append(b, "\r\nAuthorization: "+algorithm+" Credential="...), r.creds.AccessKeyID...)
	b = r.appendScope(append(b, '/'), date[:8])
	b = appendSigned(append(b, ", SignedHeaders="...), token)
	b = append(b, ", Signature="...)
	b = r.appendSignature(b, body, date, length, id)
	return append(b, "\r\n\r\n"...)
}

// appendSignature appends the signature of the headers, in the order of their names, and of the body.
func (r *route) appendSignature(b, body []byte, date, length, id string) []byte {
	token := r.creds.SessionToken
	space := buffers.Get().(*buffer)
	defer buffers.Put(space)
	c := space.head[:0]
	c = append(c, "POST\n/\n\naccept-encoding:"+encoding+"\namz-sdk-invocation-id:"...)
	c = append(append(append(c, id...), "\namz-sdk-request:"...), r.attempt...)
	c = append(append(c, "\ncontent-length:"...), length...)
	c = append(append(c, "\ncontent-type:"+content+"\nhost:"...), r.host...)
	c = append(append(c, "\nx-amz-date:"...), date...)
	if token != "" {
		c = append(append(c, "\nx-amz-security-token:"...), token...)
	}
	c = append(append(c, "\nx-amz-target:"+service...), r.target...)
	c = append(appendSigned(append(c, "\n\n"...), token), '\n')
	sum := sha256.Sum256(body)
	c = hex.AppendEncode(c, sum[:])
	sum = sha256.Sum256(c)
	c = append(append(c[:0], algorithm+"\n"...), date...)
	c = append(r.appendScope(append(c, '\n'), date[:8]), '\n')
	c = hex.AppendEncode(c, sum[:])
	space.head = c
	return hex.AppendEncode(b, r.keyOf(date[:8]).append(sum[:0], c))
}

func (r *route) appendScope(b []byte, day string) []byte {
	b = append(append(b, day...), '/')
	b = append(append(b, r.region...), '/')
	return append(append(b, r.service...), "/aws4_request"...)
}

func appendSigned(b []byte, token string) []byte {
	b = append(b, signedBefore...)
	if token != "" {
		b = append(b, signedToken...)
	}
	return append(b, signedAfter...)
}
