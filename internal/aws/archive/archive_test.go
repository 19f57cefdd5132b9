package archive_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/aws/archive"
	"github.com/weirlimits/weir/internal/aws/archive/s3bucket"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/mototest"
	"github.com/weirlimits/weir/store/dynamodb"
)

// folder is a bucket in memory. Puts to names that contain broken fail.
type folder struct {
	objects map[string][]byte
	puts    int
	broken  string
}

func (f *folder) Put(_ context.Context, name string, content []byte) error {
	if f.broken != "" && strings.Contains(name, f.broken) {
		return errors.New("out of order")
	}
	if f.objects == nil {
		f.objects = make(map[string][]byte)
	}
	f.objects[name] = content
	f.puts++
	return nil
}

// lines returns all lines by object name, cut after the day.
func (f *folder) lines(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, name := range slices.Sorted(maps.Keys(f.objects)) {
		zr, err := gzip.NewReader(bytes.NewReader(f.objects[name]))
		must(t, err)
		text, err := io.ReadAll(zr)
		must(t, err)
		part := name[:strings.LastIndex(name, "/")]
		all[part] = append(all[part], strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// expired is the stream record of an event that has expired.
func expired(number, pk, sk, value string) events.DynamoDBEventRecord {
	return events.DynamoDBEventRecord{
		EventName:    "REMOVE",
		UserIdentity: &events.DynamoDBUserIdentity{Type: "Service", PrincipalID: "dynamodb.amazonaws.com"},
		Change: events.DynamoDBStreamRecord{
			SequenceNumber: number,
			Keys:           map[string]events.DynamoDBAttributeValue{"PK": events.NewStringAttribute(pk), "SK": events.NewStringAttribute(sk)},
			OldImage:       map[string]events.DynamoDBAttributeValue{"d": events.NewBinaryAttribute([]byte(value))},
		},
	}
}

const value = `{"at":"2026-08-01T23:59:59.999Z","principal":"ann","action":"limits.set","after":{"limits":["<&>"]}}`

// Each event is in the partition of its own day, and archiving a batch again writes the same objects.
func TestPartitions(t *testing.T) {
	t.Parallel()
	batch := []events.DynamoDBEventRecord{
		expired("2", "n1/AUDIT#entity:a%2Fb%25", "#AUDIT#01B", strings.Replace(value, "2026-08-01T23:59:59.999Z", "2026-08-02T02:00:00+02:00", 1)),
		expired("1", "n1/AUDIT#system", "#AUDIT#01A", value),
		expired("3", "_/AUDIT#namespace:x", "#AUDIT#01C", value),
		expired("4", "a%2F.."+"/AUDIT#system", "#AUDIT#01D", value),
		expired("5", "n1/AUDIT#system", "#AUDIT#01E", value),
	}
	f := &folder{}
	a := archive.Archiver{To: f, KeyOf: dynamodb.AuditKey}
	failed, err := a.Archive(t.Context(), batch)
	if err != nil || failed != nil {
		t.Fatal(failed, err)
	}
	lines := f.lines(t)
	want := []string{
		"audit/namespace=_/dt=2026-08-01", "audit/namespace=a%2F../dt=2026-08-01", "audit/namespace=n1/dt=2026-08-01", "audit/namespace=n1/dt=2026-08-02",
	}
	if got := slices.Sorted(maps.Keys(lines)); !slices.Equal(got, want) {
		t.Fatalf("partitions %q", got)
	}
	if got := lines["audit/namespace=n1/dt=2026-08-02"][0]; got != `{"namespace":"n1","id":"01B","at":"2026-08-02T00:00:00Z","principal":"ann","action":"limits.set","subject":"entity:a/b%","after":{"limits":["<&>"]}}` {
		t.Errorf("line %s", got)
	}
	if got := lines["audit/namespace=n1/dt=2026-08-01"]; len(got) != 2 || !strings.Contains(got[0], "01A") || !strings.Contains(got[1], "01E") {
		t.Errorf("lines %s", got)
	}
	before := maps.Clone(f.objects)
	slices.Reverse(batch)
	if _, err := a.Archive(t.Context(), append(batch, batch...)); err != nil || !maps.EqualFunc(f.objects, before, bytes.Equal) || f.puts != 8 {
		t.Errorf("%d objects after %d puts, error %v", len(f.objects), f.puts, err)
	}
}

// Only items that DynamoDB removed because they expired are archived.
func TestOthers(t *testing.T) {
	t.Parallel()
	byHand := expired("1", "n1/AUDIT#system", "#AUDIT#01A", value)
	byHand.UserIdentity = nil
	changed := expired("2", "n1/AUDIT#system", "#AUDIT#01A", value)
	changed.EventName = "MODIFY"
	f := &folder{}
	failed, err := archive.Archiver{To: f, KeyOf: dynamodb.AuditKey}.Archive(t.Context(), []events.DynamoDBEventRecord{
		byHand, changed, expired("3", "n1/BUCKET#a#b#0", "#STATE", value), expired("4", "n1/ENTITY#AUDIT#", "#META", value),
		expired("5", "_/LEASE#x", "#RETURNED", ""),
		{EventName: "INSERT"},
	})
	if err != nil || failed != nil || f.puts != 0 {
		t.Errorf("%d puts, failed %v, error %v", f.puts, failed, err)
	}
}

// Exactly the events that could not be archived are redelivered.
func TestFailed(t *testing.T) {
	t.Parallel()
	bare := expired("2", "n1/AUDIT#system", "#AUDIT#01B", value)
	bare.Change.OldImage = nil
	f := &folder{broken: "dt=2026-08-02"}
	failed, err := archive.Archiver{To: f, KeyOf: dynamodb.AuditKey}.Archive(t.Context(), []events.DynamoDBEventRecord{
		expired("1", "n1/AUDIT#system", "#AUDIT#01A", value), bare,
		expired("3", "n1/AUDIT#system", "#AUDIT#01C", "damaged"),
		expired("4", "n1/AUDIT#system", "#AUDIT#01D", strings.Replace(value, "08-01", "08-02", 1)),
	})
	slices.Sort(failed)
	if !slices.Equal(failed, []string{"2", "3", "4"}) || len(f.objects) != 1 {
		t.Errorf("failed %v, %d objects", failed, len(f.objects))
	}
	for _, want := range []string{"NEW_AND_OLD_IMAGES", "unreadable", "out of order"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v without %s", err, want)
		}
	}
}

// unscanned is a fake for creating tables: its Scan finds nothing.
type unscanned struct{ *dynamotest.Fake }

func (unscanned) Scan(context.Context, *sdk.ScanInput, ...func(*sdk.Options)) (*sdk.ScanOutput, error) {
	return new(sdk.ScanOutput), nil
}

func newTable(t *testing.T) (*dynamotest.Fake, *weir.Limiter, *dynamodb.Store) {
	t.Helper()
	fake := new(dynamotest.Fake)
	_, err := dynamodb.Create(t.Context(), unscanned{fake}, "limits", dynamodb.CreateConfig{})
	must(t, err)
	st, err := dynamodb.Open(t.Context(), dynamodb.Config{Client: fake, Table: "limits"})
	must(t, err)
	lim, err := weir.New(weir.Config{Store: st})
	must(t, err)
	t.Cleanup(func() { _ = lim.Close() })
	return fake, lim, st
}

// Events archived from a real table read like the live events, whichever way they were archived.
func TestReadBack(t *testing.T) {
	t.Parallel()
	fake, lim, st := newTable(t)
	ctx := admin.WithPrincipal(t.Context(), "ann")
	for _, scope := range []admin.Scope{{}, {Resource: "a/b#c%"}, {Entity: "eve", Resource: "r"}} {
		must(t, admin.New(lim).Limits.Set(ctx, scope, weir.PerMinute("rpm", 7)))
	}
	must(t, admin.New(lim).Limits.Delete(ctx, admin.Scope{Resource: "a/b#c%"}))
	page, err := admin.New(lim).Audit.List(ctx, admin.AuditQuery{})
	must(t, err)

	var records []events.DynamoDBEventRecord
	for _, it := range fake.Items("limits") {
		text := func(name string) string {
			v, _ := it[name].(*types.AttributeValueMemberS)
			if v == nil {
				return ""
			}
			return v.Value
		}
		var d []byte
		if v, ok := it["d"].(*types.AttributeValueMemberB); ok {
			d = v.Value
		}
		records = append(records, expired(text("PK")+text("SK"), text("PK"), text("SK"), string(d)))
	}
	dir := archive.Dir(t.TempDir() + "/made")
	if failed, err := (archive.Archiver{To: dir, KeyOf: dynamodb.AuditKey}).Archive(ctx, records); err != nil || failed != nil {
		t.Fatal(failed, err)
	}
	names, err := dir.List(ctx, "audit/")
	must(t, err)
	if len(names) != 1 {
		t.Fatalf("objects %q", names)
	}
	n, err := archive.Live(ctx, st, dir, weir.DefaultNamespace, time.Time{})
	if again, err2 := dir.List(ctx, "audit/"); err != nil || err2 != nil || n != 4 || !slices.Equal(again, names) {
		t.Errorf("%d by hand, objects %q, errors %v, %v", n, again, err, err2)
	}
	got, err := archive.Read(ctx, dir, archive.Query{Namespace: weir.DefaultNamespace})
	must(t, err)
	if want := mustJSON(t, page.Items); mustJSON(t, strip(got)) != want {
		t.Errorf("read %s\nwant %s", mustJSON(t, got), want)
	}
	if n, err := archive.Live(ctx, st, dir, weir.DefaultNamespace, time.Now().Add(time.Minute)); n != 0 || err != nil {
		t.Errorf("%d events of the future, error %v", n, err)
	}
	if ids, err := archive.Namespaces(ctx, dir); err != nil || !slices.Equal(ids, []string{"default"}) {
		t.Errorf("namespaces %q, error %v", ids, err)
	}
}

func strip(all []archive.Event) []admin.AuditEvent {
	var out []admin.AuditEvent
	for _, e := range all {
		out = append(out, e.AuditEvent)
	}
	return out
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	return string(text)
}

// Both kinds of bucket are read alike: newest first, each event once, and only what the query selects.
func TestRead(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	var all []archive.Event
	for i := range 9 {
		e := archive.Event{Namespace: "n1"}
		e.ID, e.At, e.Subject = string(rune('a'+i)), at.Add(time.Duration(i)*8*time.Hour), []string{"system", "entity:a"}[i%2]
		all = append(all, e)
	}
	for name, open := range map[string]func(t *testing.T) archive.Bucket{
		"dir": func(t *testing.T) archive.Bucket { t.Helper(); return archive.Dir(t.TempDir()) },
		"s3": func(t *testing.T) archive.Bucket {
			t.Helper()
			client := s3.NewFromConfig(mototest.Config(t), func(o *s3.Options) { o.UsePathStyle = true })
			bucket := "archive-read"
			_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket})
			must(t, err)
			return s3bucket.New(client, bucket, "/pre/fix/")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			ctx := t.Context()
			for _, some := range [][]archive.Event{all[:5], all[3:], all[:2]} { // in batches with different bounds
				_, err := archive.Write(ctx, b, slices.Clone(some))
				must(t, err)
			}
			must(t, b.Put(ctx, "audit/namespace=n1/dt=2026-08-01/notes.txt", []byte("not ours")))
			must(t, b.Put(ctx, "audit/namespace=n10/dt=2026-08-01/x.jsonl.gz", nil))
			for _, c := range []struct {
				q    archive.Query
				want string
			}{
				{archive.Query{Namespace: "n1"}, "ihgfedcba"},
				{archive.Query{Namespace: "n1", Max: 4}, "ihgf"},
				{archive.Query{Namespace: "n1", Max: 4, After: "f"}, "edcb"},
				{archive.Query{Namespace: "n1", Subject: "entity:a"}, "hfdb"},
				{archive.Query{Namespace: "n1", From: at.Add(8 * time.Hour), To: at.Add(32 * time.Hour)}, "dcb"},
				{archive.Query{Namespace: "n2"}, ""},
			} {
				got, err := archive.Read(ctx, b, c.q)
				must(t, err)
				var ids strings.Builder
				for _, e := range got {
					ids.WriteString(e.ID)
				}
				if ids.String() != c.want {
					t.Errorf("%+v: %q, want %q", c.q, ids.String(), c.want)
				}
			}
			if _, err := archive.Read(ctx, b, archive.Query{Namespace: "n10"}); err == nil || !strings.Contains(err.Error(), "x.jsonl.gz") {
				t.Errorf("damaged: %v", err)
			}
		})
	}
}
