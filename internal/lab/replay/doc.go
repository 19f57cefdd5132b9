// Package replay runs an access log through a limiter in virtual time: what would these limits have done to the
// requests that really came?
//
// [Read] turns a log into compact records, sorted by time. [Run] decides them one by one with the same limiter that
// serves requests, on a store in memory whose clock is the log's. The log must fit in memory: about 24 bytes a line,
// 8 more for each limit that counts a field, and each entity and resource once. The search for limits that would have
// admitted more takes another 20 bytes a line while it runs.
package replay
