package cursor_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/cursor"
)

func TestCursor(t *testing.T) {
	t.Parallel()
	from := time.Unix(3600, 0)
	type at = cursor.Position
	for name, tt := range map[string]struct {
		list      cursor.List
		good, bad []cursor.Position
	}{
		"buckets": {
			cursor.OfBuckets(&store.BucketQuery{Namespace: "n"}),
			[]at{{}, {ID: "alice", Sub: "api"}, {ID: "w\x00", Sub: "\xff"}},
			[]at{{Start: 1}},
		},
		"of an entity": {
			cursor.OfBuckets(&store.BucketQuery{Namespace: "n", Entity: "b"}),
			[]at{{ID: "b"}, {ID: "b", Sub: "api"}},
			[]at{{}, {ID: "a"}, {ID: "c"}, {ID: "ba"}},
		},
		"of a resource": {
			cursor.OfBuckets(&store.BucketQuery{Namespace: "n", Resource: "api"}),
			[]at{{Sub: "api"}, {ID: "b", Sub: "api"}},
			[]at{{}, {ID: "b"}, {ID: "b", Sub: "web"}},
		},
		"records": {
			cursor.OfRecords(&store.Query{Namespace: "n", Prefix: "b"}),
			[]at{{ID: "b"}, {ID: "ba", Sub: "x"}},
			[]at{{}, {ID: "a"}, {ID: "c"}, {ID: "b", Start: -1}},
		},
		"of an id": { // the prefix is ignored
			cursor.OfRecords(&store.Query{Namespace: "n", ID: "b", Prefix: "c"}),
			[]at{{ID: "b"}},
			[]at{{}, {ID: "ba"}, {ID: "c"}},
		},
		"usage": {
			cursor.OfUsage(&store.UsageQuery{Namespace: "n", ID: "b", From: from, To: from.Add(time.Hour)}),
			[]at{{"b", "api", 3600}, {"b", "", 7199}},
			[]at{{"b", "api", 3599}, {"b", "api", 7200}, {"a", "api", 3600}},
		},
	} {
		for _, p := range tt.good {
			if got, err := tt.list.Parse(tt.list.Make(p)); err != nil || got != p {
				t.Errorf("%s: %+v came back as %+v, error %v", name, p, got, err)
			}
		}
		for _, p := range tt.bad {
			if got, err := tt.list.Parse(tt.list.Make(p)); !errors.Is(err, store.ErrBadCursor) {
				t.Errorf("%s: %+v came back as %+v, error %v", name, p, got, err)
			}
		}
		for name, bad := range map[string]string{
			"another query": cursor.OfBuckets(&store.BucketQuery{Namespace: "m"}).Make(tt.good[0]),
			"too short":     "abc",
			"no base64":     "!",
			"nothing":       "",
		} {
			if _, err := tt.list.Parse(bad); !errors.Is(err, store.ErrBadCursor) {
				t.Errorf("%s: error %v", name, err)
			}
		}
	}
}
