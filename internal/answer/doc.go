// Package answer is what httplimit, grpclimit and weir's servers share. It maps callers to entities, handles leases
// whose true cost is known only later, and formats decisions for clients: the RateLimit fields of draft-ietf-httpapi-
// ratelimit-headers-11, Retry-After, the older X-RateLimit fields, and application/problem+json (RFC 9457) with the
// status of every limit. What is part of every decision is encoded by hand: encoding/json would take a third of the
// request's time.
//
//	RateLimit-Policy: "rpm";q=100;w=60;weir-burst=150, "rpm@org-1";q=1000;w=60
//	RateLimit: "rpm";r=42;t=26
//
// A parent's limit is named limit@entity, and a limit on another resource than the first's limit@entity/resource. q and
// w are the tokens issued in a window and its length, r is what could be spent now, and t is the effective window in
// seconds: whoever spends r evenly over it keeps to the rate, and if nothing is left, there is more afterwards. Both
// fields are lists of structured fields, whose strings are ASCII: a limit with any other name is left out and appears
// only in the statuses. A limit in shadow is also left out, because nobody should slow down for it.
package answer
