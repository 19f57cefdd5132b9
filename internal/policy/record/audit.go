package record

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"
)

// Audit is an audit event in the catalog; its id and subject are in the key.
type Audit struct {
	At        time.Time       `json:"at"`
	Principal string          `json:"principal"`
	Action    string          `json:"action"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
}

type principalKey struct{}

// WithPrincipal returns a context in which changes are audited as made by name. Without one, they are audited as made
// by "unknown". Names are cut to 256 bytes.
func WithPrincipal(ctx context.Context, name string) context.Context {
	if len(name) > MaxID {
		name = name[:MaxID]
	}
	return context.WithValue(ctx, principalKey{}, strings.ToValidUTF8(name, ""))
}

// Principal returns the name that audit events of a context have.
func Principal(ctx context.Context) string {
	name, _ := ctx.Value(principalKey{}).(string)
	return cmp.Or(name, "unknown")
}

// Stamp returns the current time in the precision of records.
func Stamp() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
