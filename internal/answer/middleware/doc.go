// Package middleware is shared by httplimit and grpclimit. It maps callers to entities, and handles leases whose true
// cost is known only later.
package middleware
