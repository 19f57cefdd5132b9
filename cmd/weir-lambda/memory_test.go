package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/weirlimits/weir/internal/testkit/raced"
)

// maxPayload is the most that Lambda delivers at once, whatever the batch size.
const maxPayload = 6 << 20

// mostMemory is the most that the function may use, by batch size: what docs/aws/lambda.md states and a fifth more, which
// is less than half of its default memory size.
var mostMemory = map[int]int64{100: 46 << 20, 1000: 72 << 20, 10_000: 124 << 20}

// TestMemory gives the function batches up to the size of Lambda's, in which every record is of a different bucket: the
// worst case for what it remembers. It measures the peak size of the process, which is meaningful for the function only
// without the race detector, and its processor time. docs/aws/lambda.md has the figures.
func TestMemory(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" || raced.On {
		t.Skip("measures a process of Linux without the race detector")
	}
	total := 4_000
	if os.Getenv("WEIR_MILLION") != "" {
		total = 100_000
	}
	table := httptest.NewServer(http.HandlerFunc(emptyTable))
	t.Cleanup(table.Close)
	for _, size := range []int{100, 1000, 10_000} {
		f := start(t, "WEIR_LAMBDA=aggregate", "WEIR_TABLE=limits", "AWS_ENDPOINT_URL_DYNAMODB="+table.URL)
		first, records, batches := 0, 0, 0
		var started time.Duration
		for ; records < total; batches++ {
			event, n := batchOf(first+records, size)
			records += n
			if resp := invoke[events.DynamoDBEventResponse](f, event); len(resp.BatchItemFailures) > 0 {
				t.Fatalf("failed: %v", resp.BatchItemFailures)
			}
			if batches == 0 {
				started, first, records = f.processor(), n, 0 // the first batch starts the process, too
			}
		}
		most, each := f.memory(), (f.processor()-started)/time.Duration(records)
		t.Logf("batch size %d, %d records at once, each of another bucket: %d MiB resident at most, %s of a processor per record",
			size, records/(batches-1), most>>20, each)
		if most > mostMemory[size] {
			t.Errorf("batch size %d: %d MiB resident, want at most %d", size, most>>20, mostMemory[size]>>20)
		}
	}
}

// processor returns the function's processor time, which Linux counts in hundredths of a second.
func (f *process) processor() time.Duration {
	f.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.pid))
	must(f.t, err)
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] { // in user and in system mode
		n, err := strconv.ParseInt(field, 10, 64)
		must(f.t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// memory returns the function's peak resident memory.
func (f *process) memory() int64 {
	f.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.pid))
	must(f.t, err)
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kb int64
	_, err = fmt.Sscan(rest, &kb)
	must(f.t, err)
	return kb << 10
}

// emptyTable answers like a table that accepts every write and contains only its version.
func emptyTable(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	switch target := r.Header.Get("X-Amz-Target"); {
	case strings.HasSuffix(target, ".BatchGetItem") && bytes.Contains(body, []byte("#VERSION")):
		_, _ = io.WriteString(w, `{"Responses":{"limits":[{"PK":{"S":"_/SYSTEM#"},"SK":{"S":"#VERSION"},"n":{"N":"1"}}]},"UnprocessedKeys":{}}`)
	case strings.HasSuffix(target, ".BatchGetItem"):
		_, _ = io.WriteString(w, `{"Responses":{"limits":[]},"UnprocessedKeys":{}}`)
	default:
		_, _ = io.WriteString(w, `{}`)
	}
}

// batchOf returns as many records as fit, at most so many, starting at a number, and their count.
func batchOf(from, most int) ([]byte, int) {
	const image = `{"PK":{"S":"%[1]s"},"SK":{"S":"#STATE"},"id":{"N":"%[2]d"},"at":{"N":"%[3]d"},"wc":{"N":"%[4]d"},"tc":{"N":"%[4]d"},"e":{"N":"1234"},` +
		`"s":{"S":"AbCdEfGhIjKl"},"ttl":{"N":"1890000000"},"GP":{"S":"n7f3k2q9/IDX#7"},"GS":{"S":"bucket\u0000customer-%[2]d\u0000chat-completions"},` +
		`"L_rpm":{"N":"1584723912345"},"P_rpm":{"S":"100000/100000/60s"},"D_rpm":{"N":"%[4]d000"},` +
		`"L_tpm":{"N":"1584723912345"},"P_tpm":{"S":"5000000/5000000/60s"},"D_tpm":{"N":"%[4]d000000"},"R_tpm":{"N":"%[4]d000"}}`
	at := time.Since(time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)).Nanoseconds()
	b := []byte(`{"Records":[`)
	n := 0
	for {
		id := from + n + 1
		pk := fmt.Sprintf("n7f3k2q9/BUCKET#customer-%d-eu#chat-completions#0", id)
		was, is := fmt.Sprintf(image, pk, id, at, 7), fmt.Sprintf(image, pk, id, at, 8)
		r := fmt.Sprintf(`{"eventID":"c4ca4238a0b923820dcc509a6f75849b","eventName":"MODIFY","eventVersion":"1.1","eventSource":"aws:dynamodb","awsRegion":"us-east-1",`+
			`"dynamodb":{"ApproximateCreationDateTime":%d,"Keys":{"PK":{"S":"%s"},"SK":{"S":"#STATE"}},"OldImage":%s,"NewImage":%s,"SequenceNumber":"%021d","SizeBytes":1100,`+
			`"StreamViewType":"NEW_AND_OLD_IMAGES"},"eventSourceARN":"arn:aws:dynamodb:us-east-1:123456789012:table/limits/stream/2026-11-21T00:00:00.000"}`,
			time.Now().Unix(), pk, was, is, id)
		if n == most || len(b)+len(r)+3 > maxPayload {
			return append(b, "]}"...), n
		}
		if n++; n > 1 {
			b = append(b, ',')
		}
		b = append(b, r...)
	}
}
