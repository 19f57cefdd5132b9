package auth

import (
	"context"
	"log/slog"
	"net"
	"slices"

	"github.com/weirlimits/weir/internal/serve/ratelog"
)

// Reason is why a request was refused. It is not sent to clients.
type Reason string

// The reasons.
const (
	NoToken      Reason = "token"      // none, or one that does not exist, was revoked or has expired
	NoRole       Reason = "role"       // the token lacks the role
	NoNamespace  Reason = "namespace"  // the token is not for the namespace
	NoEntity     Reason = "entity"     // the token is bound to other entities
	NoResource   Reason = "resource"   // the token is bound to other resources
	NoPermission Reason = "permission" // the token lacks a permission
	NoHost       Reason = "host"       // the request names a host that is not allowed
)

// Reasons returns all reasons.
func Reasons() []Reason { return reasons[:] }

var reasons = [...]Reason{NoToken, NoRole, NoNamespace, NoEntity, NoResource, NoPermission, NoHost}

// Refusals counts and logs the requests that a server refuses because of who sends them. Each reason has lines of its
// own, and each source: at most one per second of a source, and [ratelog.MaxLines] of a reason.
type Refusals struct {
	Log     *slog.Logger
	Counted func(Reason) // may be nil

	sources [len(reasons)]ratelog.Sources // by reason
}

// Add counts and logs a refusal. The source is the address of the client, with or without a port.
func (r *Refusals) Add(ctx context.Context, reason Reason, from string, p *Principal, at ...slog.Attr) {
	if r.Counted != nil {
		r.Counted(reason)
	}
	host, _, err := net.SplitHostPort(from)
	if err != nil {
		host = from
	}
	leftOut, ok := r.sources[max(0, slices.Index(reasons[:], reason))].Allow(host)
	if !ok {
		return
	}
	r.Log.LogAttrs(ctx, slog.LevelWarn, "a request was refused", append(at, slog.String("reason", string(reason)),
		slog.String("from", from), slog.String("principal", p.Audit("")), slog.Int64("left_out", leftOut))...)
}
