// Package middleware is what httplimit and grpclimit share: how callers become entities, and leases whose true cost is
// known later.
package middleware
