package wire_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store/dynamodb/internal/wire"
)

// batch reads two items.
func batch() *dynamodb.BatchGetItemInput {
	key := func(sk string) map[string]types.AttributeValue {
		return map[string]types.AttributeValue{"PK": &types.AttributeValueMemberS{Value: "default"}, "SK": &types.AttributeValueMemberS{Value: sk}}
	}
	return &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
		"weir": {Keys: []map[string]types.AttributeValue{key("#a"), key("#b")}, ConsistentRead: aws.Bool(true)},
	}}
}

func batchOutcomeOf(out *dynamodb.BatchGetItemOutput, err error) (o outcome) {
	if err == nil {
		o.Items, o.Left = out.Responses, out.UnprocessedKeys
		o.meta(out.ResultMetadata)
	} else {
		o.failed(err)
	}
	return o
}

const found = `{"Responses":{"weir":[{"PK":{"S":"default"},"SK":{"S":"#a"},"v":{"B":"AQL/"}},{"L_rpm":{"N":"-7"}}]},"UnprocessedKeys":{}}`

// batchesReadHere are the answers to a BatchGetItem that the SDK does not have to read.
var batchesReadHere = []string{"found", "found nothing", "found nowhere", "found, with spaces", "found, with a sum", "found, two tables", "found, no bytes", "found, escaped", "nothing"}

// batches are possible answers to a BatchGetItem. Those to a write are others.
var batches = map[string]string{
	"found":                  says(200, found),
	"found, with a sum":      says(200, found, sum(found)),
	"found, wrong sum":       says(200, found, "X-Amz-Crc32: 1"),
	"found nothing":          says(200, `{"Responses":{"weir":[]},"UnprocessedKeys":{}}`),
	"found nowhere":          says(200, `{"Responses":{},"UnprocessedKeys":{}}`),
	"found, two tables":      says(200, `{"Responses":{"weir":[{"a":{"N":"1"}}],"weir2":[{"a":{"N":"2"}},{}]}}`),
	"found, with spaces":     says(200, " { \"Responses\" : { \"weir\" : [ { \"a\" : { \"N\" : \"1\" } } , { } ] } , \"UnprocessedKeys\" : { } } "),
	"found, no bytes":        says(200, `{"Responses":{"weir":[{"a":{"B":""}}]}}`),
	"found, escaped":         says(200, `{"Responses":{"weir":[{"a":{"B":"\u0041\/8="},"b":{"S":"}}"}}]}}`),
	"found, escaped table":   says(200, `{"Responses":{"we\u0069r":[]}}`),
	"found, bad bytes":       says(200, `{"Responses":{"weir":[{"a":{"B":"A"}}]}}`),
	"found, other types":     says(200, `{"Responses":{"weir":[{"a":{"BOOL":true},"b":{"L":[{"N":"1"}]},"c":{"M":{"x":{"S":"y"}}},"d":{"SS":["a"]}}]}}`),
	"found, table twice":     says(200, `{"Responses":{"weir":[{"a":{"N":"1"}}],"weir":[{"a":{"N":"2"}}]}}`),
	"found, twice":           says(200, `{"Responses":{"weir":[]},"Responses":{"weir":[{"a":{"N":"2"}}]}}`),
	"found, null":            says(200, `{"Responses":null,"UnprocessedKeys":null}`),
	"found, null items":      says(200, `{"Responses":{"weir":null}}`),
	"found, null item":       says(200, `{"Responses":{"weir":[null]}}`),
	"found, no list":         says(200, `{"Responses":{"weir":{"a":{"N":"1"}}}}`),
	"found, capacity":        says(200, `{"Responses":{"weir":[]},"ConsumedCapacity":[{"CapacityUnits":1,"TableName":"weir"}]}`),
	"found, more behind":     says(200, found+"x"),
	"found, ends early":      says(200, found[:60]),
	"found, keys left":       says(200, `{"Responses":{"weir":[{"a":{"N":"1"}}]},"UnprocessedKeys":{"weir":{"Keys":[{"PK":{"S":"default"},"SK":{"S":"#b"}}],"ConsistentRead":true}}}`),
	"found, zipped":          says(200, zipped(found), "Content-Encoding: gzip"),
	"found, comma":           says(200, `{"Responses":{"weir":[{"a":{"N":"1"}},]}}`),
	"found, no comma":        says(200, `{"Responses":{"weir":[{"a":{"N":"1"}}{"a":{"N":"1"}}]}}`),
	"found, list of nothing": says(200, `{"Responses":{"weir":[`),
}

// TestSameReads checks that whatever the answer to a read, the store sees the same as if the SDK had made the call, after
// as many requests.
func TestSameReads(t *testing.T) {
	t.Parallel()
	all := maps.Clone(answers)
	for name, text := range batches {
		all[name] = answer{text: text}
	}
	for name, a := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(_ *request, w net.Conn) bool {
				_, _ = io.WriteString(w, a.text)
				return a.closes
			})
			c, w := clients(t, options(s.url()))
			for range 2 { // over the same connection, if it stays open
				ctx, cancel := context.WithTimeout(t.Context(), patient)
				before := s.requests.Load()
				got := batchOutcomeOf(w.BatchGetItem(ctx, batch()))
				between := s.requests.Load()
				want := batchOutcomeOf(c.BatchGetItem(ctx, batch()))
				cancel()
				if diff := cmp.Diff(want, got, opaque); diff != "" {
					t.Fatalf("-SDK +here\n%s", diff)
				}
				if ours, theirs := between-before, s.requests.Load()-between; ours != theirs {
					t.Errorf("%d requests, and %d by the SDK", ours, theirs)
				}
			}
			if w.Sent() != 2 {
				t.Errorf("%d requests sent here", w.Sent())
			}
			if here := w.Judged() == 0; here != slices.Contains(batchesReadHere, name) {
				t.Errorf("read here: %v", here)
			}
			if idle, _ := w.Idle(); a.closes && idle != 0 || !a.closes && idle != 1 {
				t.Errorf("%d connections are kept", idle)
			}
		})
	}
}

// TestSameBatches checks that the server cannot tell this package's reads from the SDK's.
func TestSameBatches(t *testing.T) {
	t.Parallel()
	got := make(chan *request, 1)
	s := serve(t, func(r *request, w net.Conn) bool {
		got <- r
		_, _ = io.WriteString(w, says(200, found))
		return false
	})
	c, w := clients(t, options(s.url()))
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{`"\`, "\u2028<>&", "\x00\x1f"})).Filter(utf8.ValidString)
		in := &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{}}
		for _, table := range rapid.SliceOfNDistinct(text, 1, 2, rapid.ID).Draw(rt, "tables") {
			of := types.KeysAndAttributes{Keys: rapid.SliceOfN(rapid.MapOf(text, rapid.Custom(value)), 0, 3).Draw(rt, "keys")}
			if rapid.Bool().Draw(rt, "says") {
				of.ConsistentRead = aws.Bool(rapid.Bool().Draw(rt, "consistent"))
			}
			in.RequestItems[table] = of
		}
		if _, err := w.BatchGetItem(t.Context(), in); err != nil {
			rt.Fatal(err)
		}
		ours := askedOf(rt, <-got)
		if _, err := c.BatchGetItem(t.Context(), in); err != nil {
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

// TestBatchHasAll is TestBodyHasAll for reads.
func TestBatchHasAll(t *testing.T) {
	t.Parallel()
	made := 0
	check := func(of reflect.Type, set func() (*dynamodb.BatchGetItemInput, reflect.Value)) {
		for _, f := range reflect.VisibleFields(of) {
			if !f.IsExported() {
				continue
			}
			in, v := set()
			switch at := v.FieldByIndex(f.Index); f.Type.Kind() {
			case reflect.Map:
				if at.IsNil() {
					at.Set(reflect.MakeMap(f.Type))
				}
			case reflect.Slice:
				if at.IsNil() {
					at.Set(reflect.MakeSlice(f.Type, 1, 1))
				}
			case reflect.Pointer:
				at.Set(reflect.New(f.Type.Elem()))
			case reflect.String:
				at.SetString("x")
			default:
				t.Errorf("%s: a %s, which the test does not know", f.Name, f.Type)
			}
			if of == reflect.TypeFor[types.KeysAndAttributes]() {
				in.RequestItems["weir"] = v.Interface().(types.KeysAndAttributes)
			}
			body, ok := wire.Batch(in)
			if ok && !bytes.Contains(body, []byte(`"`+f.Name+`":`)) {
				t.Errorf("%s is left out", f.Name)
			}
			if ok {
				made++
			}
		}
	}
	check(reflect.TypeFor[dynamodb.BatchGetItemInput](), func() (*dynamodb.BatchGetItemInput, reflect.Value) {
		in := batch()
		return in, reflect.ValueOf(in).Elem()
	})
	check(reflect.TypeFor[types.KeysAndAttributes](), func() (*dynamodb.BatchGetItemInput, reflect.Value) {
		in := batch()
		of := in.RequestItems["weir"]
		return in, reflect.ValueOf(&of).Elem()
	})
	if made != 3 {
		t.Errorf("%d members can be there", made)
	}
}

// TestReadRepeated checks that the SDK makes the reads of a client that may attempt them more than once: its retryer counts,
// paces and limits attempts.
func TestReadRepeated(t *testing.T) {
	t.Parallel()
	s := serve(t, func(r *request, w net.Conn) bool {
		if r.n == 1 {
			_, _ = io.WriteString(w, answers["throttled"].text)
		} else {
			_, _ = io.WriteString(w, says(200, found))
		}
		return false
	})
	o := options(s.url())
	o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
	})
	_, w := clients(t, o)
	out, err := w.BatchGetItem(t.Context(), batch())
	if err != nil || len(out.Responses["weir"]) != 2 || s.requests.Load() != 2 || w.Sent() != 0 {
		t.Errorf("%+v, %v; %d requests, %d of them sent here", out, err, s.requests.Load(), w.Sent())
	}
}

// TestReadEnds checks that a read ends with its context, and that its connection is not used again.
func TestReadEnds(t *testing.T) {
	t.Parallel()
	asked := make(chan bool, 1)
	s := serve(t, func(r *request, w net.Conn) bool {
		if r.n == 2 {
			asked <- true
			return false
		}
		_, _ = io.WriteString(w, says(200, found))
		return false
	})
	_, w := clients(t, options(s.url()))
	if _, err := w.BatchGetItem(t.Context(), batch()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		<-asked
		cancel(nil)
	}()
	if _, err := w.BatchGetItem(ctx, batch()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if _, open := w.Idle(); open != 0 {
		t.Errorf("%d connections are open", open)
	}
	if n := s.requests.Load(); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// TestOnePool checks that reads and writes share connections, also under the next credentials.
func TestOnePool(t *testing.T) {
	t.Parallel()
	s := serve(t, func(r *request, w net.Conn) bool {
		text := well
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".BatchGetItem") {
			text = found
		}
		_, _ = io.WriteString(w, says(200, text))
		return false
	})
	o := options(s.url())
	k := someKeys()
	o.Credentials = k
	_, w := clients(t, o)
	for i := range 4 {
		if i == 2 {
			k.current.Store(&aws.Credentials{AccessKeyID: "NEXT", SecretAccessKey: "secret"})
		}
		want(t, w)
		if _, err := w.BatchGetItem(t.Context(), batch()); err != nil {
			t.Fatal(err)
		}
	}
	if w.Sent() != 8 || s.conns.Load() != 1 {
		t.Errorf("%d requests sent here over %d connections", w.Sent(), s.conns.Load())
	}
}

// TestSameBatchItems checks that items of any texts, numbers and bytes come back as with the SDK.
func TestSameBatchItems(t *testing.T) {
	t.Parallel()
	var body string
	s := serve(t, func(_ *request, w net.Conn) bool {
		_, _ = io.WriteString(w, says(200, body))
		return false
	})
	c, w := clients(t, options(s.url()))
	rapid.Check(t, func(rt *rapid.T) {
		item := rapid.Custom(func(rt *rapid.T) string {
			attrs := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) string {
				kind := rapid.SampledFrom([]string{"N", "S", "B"}).Draw(rt, "kind")
				text := rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune(`\"/{}:,u0`))))
				if kind == "B" {
					text = rapid.OneOf(rapid.StringMatching(`([A-Za-z0-9+/]{4}){0,3}([A-Za-z0-9+/]{2}==)?`), text)
				}
				return `"` + rapid.StringMatching(`[a-zL_]{1,3}`).Draw(rt, "name") + `":{"` + kind + `":"` + text.Draw(rt, "text") + `"}`
			}), 0, 5).Draw(rt, "attributes")
			return "{" + strings.Join(attrs, ",") + "}"
		})
		body = `{"Responses":{"weir":[` + strings.Join(rapid.SliceOfN(item, 0, 4).Draw(rt, "items"), ",") + `]},"UnprocessedKeys":{}}`
		got := batchOutcomeOf(w.BatchGetItem(t.Context(), batch()))
		want := batchOutcomeOf(c.BatchGetItem(t.Context(), batch()))
		if diff := cmp.Diff(want, got, opaque); diff != "" {
			rt.Fatalf("%s\n-SDK +here\n%s", body, diff)
		}
	})
}
