package wire_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store/dynamodb/internal/wire"
)

// asked is what a server saw of a request, except for what differs in every request.
type asked struct {
	Header     http.Header
	Host, Line string
	Body       any
}

func askedOf(rt *rapid.T, r *request) asked {
	a := asked{Header: r.Header.Clone(), Host: r.Host, Line: r.Method + r.RequestURI + r.Proto}
	for _, name := range []string{"Authorization", "Amz-Sdk-Invocation-Id", "X-Amz-Date", "Content-Length"} {
		if a.Header.Get(name) == "" {
			rt.Errorf("no %s", name)
		}
		a.Header.Del(name)
	}
	d := json.NewDecoder(bytes.NewReader(r.body))
	d.UseNumber() // so that numbers keep all their digits
	if err := d.Decode(&a.Body); err != nil {
		rt.Error(err)
	}
	return a
}

// value draws what an attribute can hold, mostly values as buckets have them.
func value(rt *rapid.T) types.AttributeValue {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "\xff", `"\`, "\u2028<>&", "\x00\x1f\x7f"}))
	switch rapid.IntRange(0, 20).Draw(rt, "type") {
	case 0:
		return &types.AttributeValueMemberBOOL{Value: true}
	case 1:
		return &types.AttributeValueMemberB{Value: []byte("\x00\xff")}
	case 2:
		return &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberNULL{Value: true}}}
	case 3, 4, 5, 6, 7, 8:
		return &types.AttributeValueMemberS{Value: text.Draw(rt, "text")}
	}
	return &types.AttributeValueMemberN{Value: rapid.StringMatching(`-?[0-9]{1,19}`).Draw(rt, "number")}
}

// TestSameRequests checks that the server cannot tell this package's requests from the SDK's.
func TestSameRequests(t *testing.T) {
	t.Parallel()
	got := make(chan *request, 1)
	s := serve(t, func(r *request, w net.Conn) bool {
		got <- r
		_, _ = io.WriteString(w, says(200, well))
		return false
	})
	c, w := clients(t, options(s.url()))
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\xff", `"\`, "\u2028<>&", "\x00\x1f"}))
		some := func(s string) *string {
			if s == "" {
				return nil
			}
			return &s
		}
		name := text.Filter(utf8.ValidString) // otherwise different names could be equal in JSON
		values := rapid.MapOf(name, rapid.Custom(value))
		in := &dynamodb.UpdateItemInput{
			TableName: aws.String(text.Filter(func(s string) bool { return s != "" }).Draw(rt, "table")),
			Key:       values.Draw(rt, "key"), ExpressionAttributeValues: values.Draw(rt, "values"),
			ConditionExpression: some(text.Draw(rt, "condition")), UpdateExpression: some(text.Draw(rt, "update")),
			ExpressionAttributeNames:            rapid.MapOf(name, text).Draw(rt, "names"),
			ReturnValues:                        types.ReturnValue(rapid.SampledFrom([]string{"", "ALL_NEW"}).Draw(rt, "return")),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailure(rapid.SampledFrom([]string{"", "ALL_OLD"}).Draw(rt, "refused")),
		}
		if _, err := w.UpdateItem(t.Context(), in, once); err != nil {
			rt.Fatal(err)
		}
		ours := askedOf(rt, <-got)
		if _, err := c.UpdateItem(t.Context(), in, once); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(askedOf(rt, <-got), ours); diff != "" {
			rt.Fatalf("-SDK +here\n%s", diff)
		}
	})
	if w.Sent() == 0 {
		t.Error("none was sent here")
	}
}

// TestSameSignature checks that signatures are those of the SDK's signer.
func TestSameSignature(t *testing.T) {
	t.Parallel()
	text := rapid.StringMatching(`[!-~]([ !-~]?[!-~]){0,20}`)
	rapid.Check(t, func(rt *rapid.T) {
		creds := aws.Credentials{AccessKeyID: text.Draw(rt, "key"), SecretAccessKey: text.Draw(rt, "secret")}
		if rapid.Bool().Draw(rt, "temporary") {
			creds.SessionToken = text.Draw(rt, "token")
		}
		region := rapid.StringMatching(`[a-z]{2}-[a-z]{4,9}-[1-9]`).Draw(rt, "region")
		host := rapid.StringMatching(`[a-z0-9.-]{1,30}(:[1-9][0-9]{3})?`).Draw(rt, "host")
		body := []byte(rapid.String().Draw(rt, "body") + "x")
		at := time.Unix(rapid.Int64Range(0, 4e9).Draw(rt, "time"), 0)
		id := wire.Invocation()
		head := wire.Head(creds, region, host, rapid.SampledFrom([]string{"UpdateItem", "BatchGetItem"}).Draw(rt, "target"), body, at, id)

		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/", bytes.NewReader(body))
		if err != nil {
			rt.Fatal(err)
		}
		req.Host = host
		var got string
		lines := strings.Split(strings.TrimSuffix(head, "\r\n\r\n"), "\r\n")
		for _, line := range lines[1:] {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "Authorization":
				got = value
			case "Host", "Content-Length":
			default:
				req.Header.Set(name, value)
			}
		}
		sum := sha256.Sum256(body)
		if err := v4.NewSigner().SignHTTP(t.Context(), creds, req, hex.EncodeToString(sum[:]), "dynamodb", region, at); err != nil {
			rt.Fatal(err)
		}
		if want := req.Header.Get("Authorization"); got != want {
			rt.Fatalf("%s\nwant %s", got, want)
		}
	})
}

// TestBodyHasAll checks that no member of an input is left out silently, even members that the SDK adds in the future.
func TestBodyHasAll(t *testing.T) {
	t.Parallel()
	made := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[dynamodb.UpdateItemInput]()) {
		if !f.IsExported() {
			continue
		}
		in := &dynamodb.UpdateItemInput{TableName: aws.String("weir"), Key: map[string]types.AttributeValue{}}
		v := reflect.ValueOf(in).Elem().FieldByIndex(f.Index)
		switch f.Type.Kind() {
		case reflect.Map:
			v.Set(reflect.MakeMap(f.Type))
		case reflect.Pointer:
			v.Set(reflect.New(f.Type.Elem()))
		case reflect.String:
			v.SetString("x")
		default:
			t.Errorf("%s: a %s, which the test does not know", f.Name, f.Type)
		}
		body, ok := wire.Body(in)
		if ok && !bytes.Contains(body, []byte(`"`+f.Name+`":`)) {
			t.Errorf("%s is left out", f.Name)
		}
		if ok {
			made++
		}
	}
	if made != 8 {
		t.Errorf("%d members can be there", made)
	}
}

// TestInvocation checks that the IDs of requests are UUIDs, all different.
func TestInvocation(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for range 1000 {
		id := wire.Invocation()
		if len(id) != 36 || id[14] != '4' || !strings.ContainsAny(id[19:20], "89ab") || id[8] != '-' || id[23] != '-' || seen[id] {
			t.Fatal(id)
		}
		seen[id] = true
	}
}

// TestLambdaTrace checks that in a Lambda function, requests name the invocation that they belong to, which changes.
func TestLambdaTrace(t *testing.T) {
	t.Setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
	got := make(chan string, 1)
	s := serve(t, func(r *request, w net.Conn) bool {
		got <- r.Header.Get("X-Amzn-Trace-Id")
		_, _ = io.WriteString(w, says(200, well))
		return false
	})
	c, w := clients(t, options(s.url()))
	for _, trace := range []string{"Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1", "Root=2", "with a space"} {
		t.Setenv("_X_AMZN_TRACE_ID", trace)
		want(t, w)
		ours := <-got
		if _, err := c.UpdateItem(t.Context(), write(), once); err != nil {
			t.Fatal(err)
		}
		if theirs := <-got; ours != theirs || ours == "" {
			t.Errorf("%q, and of the SDK %q", ours, theirs)
		}
	}
	if w.Sent() != 2 {
		t.Errorf("%d sent here", w.Sent())
	}
}
