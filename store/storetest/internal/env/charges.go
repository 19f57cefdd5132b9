package env

import (
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
)

// Bucket returns a bucket of namespace "n".
func Bucket(entity, resource string) store.Bucket {
	return store.Bucket{Namespace: "n", Entity: entity, Resource: resource}
}

// Per returns a limit of tokens per period, with a burst of as many.
func Per(name string, tokens int64, period time.Duration) *store.Limit {
	return &store.Limit{Name: name, Amount: tokens * Token, Period: period, Burst: tokens * Token}
}

// PerMinute is Per with a minute.
func PerMinute(name string, tokens int64) *store.Limit { return Per(name, tokens, time.Minute) }

// Still returns a limit whose clock does not advance during a test, so that its levels are exact on any clock.
func Still(name string, tokens int64) *store.Limit {
	return &store.Limit{Name: name, Amount: 1, Period: 366 * 24 * time.Hour, Burst: tokens * Token}
}

// Quota returns a limit of tokens per window of the calendar, such as month@Europe/Berlin.
func Quota(name string, tokens int64, window string) *store.Limit {
	l := &store.Limit{Name: name, Amount: tokens * Token, Burst: tokens * Token}
	if err := l.Window.UnmarshalText([]byte(window)); err != nil {
		panic(err)
	}
	return l
}

// Balance returns a limit that is a balance.
func Balance(name string) *store.Limit { return &store.Limit{Name: name, Burst: 1 << 62} }

// Slots returns a limit of so many slots at once, which heal in half a minute.
func Slots(name string, slots int64) *store.Limit {
	return store.Slots(name, slots*Token, 30*time.Second)
}

// GiveBack returns a charge of a settle that gives back slots of a hold.
func GiveBack(l *store.Limit, slots int64, hold *store.Hold) store.Charge {
	return store.Charge{Limit: l, Amount: -slots * Token, Hold: hold}
}

// Renew returns a charge of a settle that renews slots of a hold.
func Renew(l *store.Limit, slots int64, hold *store.Hold) store.Charge {
	return store.Charge{Limit: l, Amount: slots * Token, Hold: hold}
}

// Charge returns a charge in tokens.
func Charge(l *store.Limit, tokens int64) store.Charge {
	return store.Charge{Limit: l, Amount: tokens * Token}
}

// Force returns a forced charge in tokens.
func Force(l *store.Limit, tokens int64) store.Charge {
	return store.Charge{Limit: l, Amount: tokens * Token, Force: true}
}

// Debit returns a debit under epoch 1.
func Debit(b store.Bucket, charges ...store.Charge) store.Debit {
	return store.Debit{Bucket: b, Charges: charges, Epoch: 1}
}

// At returns a debit under another epoch.
func At(epoch uint64, d store.Debit) store.Debit {
	d.Epoch = epoch
	return d
}

// Override returns the limit as a request's own.
func Override(l *store.Limit) *store.Limit {
	c := *l
	c.Override = true
	return &c
}

// Loose returns a debit of a request with its own limits, which reads no catalog.
func Loose(b store.Bucket, charges ...store.Charge) store.Debit { return At(0, Debit(b, charges...)) }

// Shadow returns a shadow charge in tokens.
func Shadow(l *store.Limit, tokens int64) store.Charge {
	return store.Charge{Limit: l, Amount: tokens * Token, Shadow: true}
}

// OddIDs are legal ids that a careless key builder, expression or pattern misinterprets.
var OddIDs = []string{
	"a", "A", "a/b", "b/c", "c", "a#b", "a##b", "#", "/", "//", "a/", "/a", "openai/gpt-4o", "a b", " a", "a ", "%",
	"%2F",
	"a%2Fb", "a%b", "%%", "+", "a+b", "*", "?", "[a]", "{a}", ":", "a:b", "::", ".", "..", "../a", "~", "\\", "a\\b",
	"'", "\"", "`", "$a",
	"${a}", "&amp;", "<a>", "|", "^", "!", "@", "=", ",", ";", "_", "__", "-", "--", "a-b", "a_b", "NULL", "nil", "0",
	"00", "-1", "1e9",
	"é", "e\u0301", "ß", "ss", "日本", "日", "本", "𝔘", "🙂", "ÿ", "#STATE", "BUCKET#a#b#0", "n/BUCKET", "ttl",
	strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("é", 128), strings.Repeat("🙂", 64),
	strings.Repeat("/", 256),
}
