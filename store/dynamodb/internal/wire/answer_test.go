package wire_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store/dynamodb/internal/wire"
)

// outcome is everything that the store looks at in the result of a call.
type outcome struct {
	Items               map[string][]map[string]types.AttributeValue
	Left                map[string]types.KeysAndAttributes
	Item                map[string]types.AttributeValue
	Time                string
	Error               string
	Code, Message       string
	Fault               smithy.ErrorFault
	Typed               string
	Reasons             []types.ThrottlingReason
	Status              int
	Date, ErrorRequest  string
	Operation, Snapshot string
}

func outcomeOf(out *dynamodb.UpdateItemOutput, err error) (o outcome) {
	if err == nil {
		o.Item = out.Attributes
		o.meta(out.ResultMetadata)
	} else {
		o.failed(err)
	}
	return o
}

func (o *outcome) meta(m middleware.Metadata) {
	if at, ok := wire.ServerTime(m); ok {
		o.Time = at.String()
	}
}

func (o *outcome) failed(err error) {
	o.Error = err.Error()
	var api smithy.APIError
	if errors.As(err, &api) {
		o.Code, o.Message, o.Fault, o.Typed = api.ErrorCode(), api.ErrorMessage(), api.ErrorFault(), fmt.Sprintf("%T", api)
	}
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		o.Item = failed.Item
	}
	var slow *types.ThrottlingException
	var much *types.ProvisionedThroughputExceededException
	if errors.As(err, &slow) {
		o.Reasons = slow.ThrottlingReasons
	} else if errors.As(err, &much) {
		o.Reasons = much.ThrottlingReasons
	}
	var resp *awshttp.ResponseError
	if errors.As(err, &resp) {
		o.Status, o.ErrorRequest, o.Date = resp.HTTPStatusCode(), resp.RequestID, resp.Response.Header.Get("Date")
	}
	var op *smithy.OperationError
	if errors.As(err, &op) {
		o.Operation = op.ServiceID + op.OperationName
	}
	var broken *smithy.DeserializationError
	if errors.As(err, &broken) {
		o.Snapshot = string(broken.Snapshot)
	}
}

// fault is an error response of DynamoDB.
func fault(status int, name, more string, headers ...string) string {
	return says(status, fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s"%s}`, name, more), headers...)
}

const refused = `,"message":"The conditional request failed","Item":{"wc":{"N":"7"},"s":{"S":"rpm"}}`

// sum is the header with the checksum of a body.
func sum(body string) string { return fmt.Sprint("X-Amz-Crc32: ", crc32.ChecksumIEEE([]byte(body))) }

func zipped(text string) string {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.String()
}

var why = `,"message":"slow down","ThrottlingReasons":[{"reason":"TableWriteKeyRangeThroughputExceeded","resource":"arn:aws:dynamodb:eu-central-1:1:table/weir"}]`

// readHere are the answers that the SDK does not have to read. They are nearly all that occur.
var readHere = []string{"well", "nothing", "refused, no item", "with a sum", "spaces", "no date", "strange date", "other request id", "control codes", "refused", "refused, no message"}

// answer is what a server says.
type answer struct {
	text   string
	closes bool // after the answer
}

// answers are the possible answers.
var answers = map[string]answer{
	"well":                 {says(200, well), false},
	"with a sum":           {says(200, well, sum(well)), false},
	"wrong sum":            {says(200, well, "X-Amz-Crc32: 1"), false},
	"no number as sum":     {says(200, well, "X-Amz-Crc32: x"), false},
	"nothing":              {says(200, "{}"), false},
	"no body":              {says(200, ""), false},
	"spaces":               {says(200, " { \"Attributes\" :\n{ \"a\" : { \"S\" : \"\" } } } "), false},
	"escapes":              {says(200, `{"Attributes":{"a\"b":{"S":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"},"é":{"S":"é😀"},"b":{"S":"\n"}}}`), false},
	"control codes":        {says(200, `{"Attributes":{"a":{"S":"bucket\u0000e\u0000\t\"\\\/"}}}`), false},
	"half a pair":          {says(200, `{"Attributes":{"a":{"S":"\ud83d"}}}`), false},
	"other types":          {says(200, `{"Attributes":{"a":{"B":"AQI="},"b":{"BOOL":true},"c":{"NULL":true},"d":{"L":[{"N":"1"}]},"e":{"M":{"x":{"S":"y"}}},"f":{"SS":["a"]},"g":{"NS":["1"]},"h":{"BS":["AQI="]}}}`), false},
	"a type twice":         {says(200, `{"Attributes":{"a":{"S":"1","N":"2"}}}`), false},
	"an attribute twice":   {says(200, `{"Attributes":{"a":{"N":"1"},"a":{}}}`), false},
	"no type":              {says(200, `{"Attributes":{"a":{}}}`), false},
	"no such type":         {says(200, `{"Attributes":{"a":{"X":"1"}}}`), false},
	"null":                 {says(200, `{"Attributes":null}`), false},
	"capacity":             {says(200, `{"Attributes":{"a":{"N":"1"}},"ConsumedCapacity":{"CapacityUnits":1,"TableName":"weir"}}`), false},
	"unknown member":       {says(200, `{"Attributes":{"a":{"N":"1"}},"New":{"x":[1,"2",null]}}`), false},
	"more behind":          {says(200, well+" x"), false},
	"number as number":     {says(200, `{"Attributes":{"a":{"N":1}}}`), false},
	"no JSON":              {says(200, "<html>"), false},
	"JSON that ends early": {says(200, well[:20]), false},
	"not UTF-8":            {says(200, "{\"Attributes\":{\"a\":{\"S\":\"\xff\"}}}"), false},
	"control character":    {says(200, "{\"Attributes\":{\"a\":{\"S\":\"\x01\"}}}"), false},
	"chunks":               {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nDate: " + begun + "\r\n\r\n5\r\n" + well[:5] + "\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(well)-5, well[5:]), false},
	"till the end":         {"HTTP/1.1 200 OK\r\n\r\n" + well, true},
	"HTTP 1.0":             {"HTTP/1.0 200 OK\r\nContent-Length: " + fmt.Sprint(len(well)) + "\r\n\r\n" + well, true},
	"closes":               {says(200, well, "Connection: close"), true},
	"announced":            {"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + says(200, well), false},
	"breaks off":           {strings.Replace(says(200, well), well, well[:20], 1), true},
	"chunks break off":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" + well[:5] + "\r\n", true},
	"refusal breaks off":   {strings.TrimSuffix(fault(400, "ConditionalCheckFailedException", refused), `"rpm"}}}`), true},
	"no date":              {"HTTP/1.1 200 OK\r\nContent-Length: " + fmt.Sprint(len(well)) + "\r\n\r\n" + well, false},
	"strange date":         {"HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: " + fmt.Sprint(len(well)) + "\r\n\r\n" + well, false},
	"other request id":     {"HTTP/1.1 200 OK\r\nX-Amz-RequestId: other\r\nContent-Length: " + fmt.Sprint(len(well)) + "\r\n\r\n" + well, false},
	"zipped":               {says(200, zipped(well), "Content-Encoding: gzip"), false},

	"refused":              {fault(400, "ConditionalCheckFailedException", refused), false},
	"refused, no item":     {fault(400, "ConditionalCheckFailedException", `,"message":"no"`), false},
	"refused, null item":   {fault(400, "ConditionalCheckFailedException", `,"message":"no","Item":null`), false},
	"refused, Message":     {fault(400, "ConditionalCheckFailedException", strings.Replace(refused, "message", "Message", 1)), false},
	"refused, no message":  {fault(400, "ConditionalCheckFailedException", `,"Item":{"a":{"N":"1"}}`), false},
	"refused, no text":     {fault(400, "ConditionalCheckFailedException", `,"message":"","Item":{"a":{"N":"1"}}`), false},
	"refused by header":    {fault(400, "ConditionalCheckFailedException", refused, "X-Amzn-Errortype: ValidationException"), false},
	"refused with 200":     {fault(200, "ConditionalCheckFailedException", refused), false},
	"refused with 500":     {fault(500, "ConditionalCheckFailedException", refused), false},
	"refused, wrong sum":   {fault(400, "ConditionalCheckFailedException", refused, "X-Amz-Crc32: 1"), false},
	"refused, other types": {fault(400, "ConditionalCheckFailedException", `,"message":"no","Item":{"a":{"L":[]}}`), false},
	"throttled":            {fault(400, "ThrottlingException", why), false},
	"much":                 {fault(400, "ProvisionedThroughputExceededException", why), false},
	"too many":             {fault(400, "RequestLimitExceeded", why), false},
	"denied":               {says(400, `{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"no"}`), false},
	"invalid":              {says(400, `{"__type":"com.amazon.coral.validate#ValidationException","message":"bad"}`), false},
	"no table":             {fault(400, "ResourceNotFoundException", `,"message":"none"`), false},
	"conflict":             {fault(400, "TransactionConflictException", `,"message":"x"`), false},
	"replicated":           {fault(400, "ReplicatedWriteConflictException", `,"message":"x"`), false},
	"too large":            {fault(400, "ItemCollectionSizeLimitExceededException", `,"message":"x"`), false},
	"expired":              {says(400, `{"__type":"com.amazon.coral.service#ExpiredTokenException","message":"x"}`), false},
	"skewed":               {says(400, `{"__type":"com.amazon.coral.service#InvalidSignatureException","message":"Signature expired"}`), false},
	"internal":             {fault(500, "InternalServerError", `,"message":"x"`), false},
	"failure":              {says(500, `{"__type":"com.amazon.coral.service#InternalFailure","message":"x"}`), false},
	"page":                 {says(503, "<html><body>503</body></html>", "Content-Type: text/html"), false},
	"empty 502":            {says(502, ""), false},
	"unknown code":         {says(400, `{"__type":"x#NewException","message":"x"}`), false},
	"no code":              {says(400, `{}`), false},
	"redirect":             {says(301, "", "Location: http://127.0.0.1:1/"), false},
}

// TestSameAnswers checks that whatever the answer, the store sees the same as if the SDK had made the call.
func TestSameAnswers(t *testing.T) {
	t.Parallel()
	for name, a := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(_ *request, w net.Conn) bool {
				_, _ = io.WriteString(w, a.text)
				return a.closes
			})
			c, w := clients(t, options(s.url()))
			for range 2 { // over the same connection, if it stays open
				ctx, cancel := context.WithTimeout(t.Context(), patient)
				got := outcomeOf(w.UpdateItem(ctx, write(), once))
				want := outcomeOf(c.UpdateItem(ctx, write(), once))
				cancel()
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(), opaque); diff != "" {
					t.Fatalf("-SDK +here\n%s", diff)
				}
			}
			if w.Sent() != 2 || s.requests.Load() != 4 {
				t.Errorf("%d requests sent here, of %d", w.Sent(), s.requests.Load())
			}
			if here := w.Judged() == 0; here != slices.Contains(readHere, name) {
				t.Errorf("read here: %v", here)
			}
			if idle, _ := w.Idle(); a.closes && idle != 0 || !a.closes && idle != 1 {
				t.Errorf("%d connections are kept", idle)
			}
		})
	}
}

// opaque leaves out what the SDK's types hide.
var opaque = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".noSmithyDocumentSerde" }, cmp.Ignore())

// TestSameItems checks that items with any texts and numbers come back as with the SDK, in an answer or in a refusal.
func TestSameItems(t *testing.T) {
	t.Parallel()
	var body string
	status := http.StatusOK
	s := serve(t, func(_ *request, w net.Conn) bool {
		_, _ = io.WriteString(w, says(status, body))
		return false
	})
	c, w := clients(t, options(s.url()))
	rapid.Check(t, func(rt *rapid.T) {
		item := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) string {
			kind := rapid.SampledFrom([]string{"N", "S", "S", "BOOL", "L"}).Draw(rt, "kind")
			value := map[string]string{"BOOL": "true", "L": `[{"S":"x"}]`}[kind]
			if value == "" {
				value = `"` + rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune(`\"/{}:,u0`)))).Draw(rt, "text") + `"`
			}
			return `"` + rapid.StringMatching(`[a-zL_é]{1,3}`).Draw(rt, "name") + `":{"` + kind + `":` + value + `}`
		}), 0, 6).Draw(rt, "item")
		text := "{" + strings.Join(item, ",") + "}"
		status, body = http.StatusOK, `{"Attributes":`+text+`}`
		if rapid.Bool().Draw(rt, "refused") {
			status, body = http.StatusBadRequest, `{"__type":"x#ConditionalCheckFailedException","message":"no","Item":`+text+`}`
		}
		got := outcomeOf(w.UpdateItem(t.Context(), write(), once))
		want := outcomeOf(c.UpdateItem(t.Context(), write(), once))
		if diff := cmp.Diff(want, got, opaque); diff != "" {
			rt.Fatalf("%s\n-SDK +here\n%s", body, diff)
		}
	})
}
