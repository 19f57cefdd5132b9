package record_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// tricky are characters that cannot be seen, or that change how others are.
var tricky = []rune{
	0x00ad, 0x034f, 0x061c, 0x115f, 0x180e, 0x200b, 0x200c, 0x200d, 0x200e, 0x200f, 0x2028, 0x2029, 0x202a, 0x202d, 0x202e,
	0x2060, 0x2066, 0x2069, 0x3164, 0xfeff, 0xffa0, 0xe0001, 0xe0041,
}

func TestVisible(t *testing.T) {
	t.Parallel()
	for _, r := range tricky {
		id := "a" + string(r) + "b"
		if err := record.CheckVisible("entity", id); err == nil || strings.ContainsRune(err.Error(), r) {
			t.Errorf("%U: got %v", r, err)
		}
		if err := record.CheckID("entity", id); err != nil {
			t.Errorf("%U: one that is stored cannot be used: %v", r, err)
		}
		body, err := json.Marshal(map[string]string{"id": id})
		if err != nil {
			t.Fatal(err)
		}
		shown := record.VisibleJSON(body)
		var back map[string]string
		if err := json.Unmarshal(shown, &back); err != nil || back["id"] != id {
			t.Errorf("%U: %s is %q, %v", r, shown, back["id"], err)
		}
		for _, text := range []string{record.Visible(id), string(shown), string(record.VisibleYAML(body))} {
			if strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) {
				t.Errorf("%U: shown as %q", r, text)
			}
		}
	}
	for _, id := range []string{"key-alice", "größe", "模型/gpt 4", "команда", "שלום", "🙂"} {
		if err := record.CheckVisible("entity", id); err != nil || record.Visible(id) != id || string(record.VisibleJSON([]byte(id))) != id {
			t.Errorf("%s: got %v, %s", id, err, record.Visible(id))
		}
	}
	if got := record.Visible("a\x1b[2J\n\u202eb"); got != `a\x1b[2J\n\u202eb` {
		t.Errorf("got %s", got)
	}
}

func TestCheckNew(t *testing.T) {
	t.Parallel()
	const bad = "a\u202eb"
	for name, tt := range map[string]struct {
		write store.Write
		field string
	}{
		"an entity":             {store.Write{Record: store.Record{Key: store.Key{Kind: store.KindEntity, ID: bad}}}, "entity"},
		"limits of an entity":   {store.Write{Record: store.Record{Key: store.Key{Kind: store.KindEntityLimits, ID: bad}}}, "entity"},
		"limits on a resource":  {store.Write{Record: store.Record{Key: store.Key{Kind: store.KindEntityLimits, Sub: bad}}}, "resource"},
		"limits of a resource":  {store.Write{Record: store.Record{Key: store.Key{Kind: store.KindResourceLimits, ID: bad}}}, "resource"},
		"a namespace":           {store.Write{Record: store.Record{Key: store.Key{Kind: store.KindNamespace, ID: bad}}}, "namespace"},
		"a manifest":            {store.Write{Record: store.Record{Key: store.Key{Kind: store.KindManifest, ID: bad}}}, "manifest"},
		"an event":              {write: store.Write{Record: store.Record{Key: store.Key{Kind: store.KindAudit, Sub: bad}}}},
		"an entity that exists": {write: store.Write{Record: store.Record{Key: store.Key{Kind: store.KindEntity, ID: bad}, Version: 7}}},
		"a deletion":            {write: store.Write{Record: store.Record{Key: store.Key{Kind: store.KindEntity, ID: bad}}, Delete: true}},
	} {
		err := record.CheckNew([]store.Write{{}, tt.write})
		var field *record.FieldError
		if errors.As(err, &field) != (tt.field != "") || field != nil && field.Field != tt.field {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
