// Package notify sends events about limits that are nearly used up to a webhook or a log.
//
// Each event is one POST of a JSON object, with these headers:
//
//	Weir-Event-Id    the event's id: the same for every attempt, and from every process that reports the event
//	Weir-Timestamp   when it was sent, in seconds since 1970; different for every attempt
//	Weir-Signature   v1= and the hexadecimal HMAC-SHA256, under the shared secret, of timestamp "." body
//
// A status from 200 to 299 accepts the event. After a 429, a status of 500 or more, or no response, the event is sent
// again, within the bounds of [MaxAttempts] and [MaxAge]; any other status drops it. Undelivered events are counted and
// logged. Decisions never wait for a receiver.
package notify
