// Package notify tells others of limits that are near their end: a webhook, or a log.
//
// Each event is one POST of a JSON object, with these headers:
//
//	Weir-Event-Id    the event's id: the same when it is sent again, and from every process that tells of it
//	Weir-Timestamp   when it was sent, in seconds since 1970; another one when it is sent again
//	Weir-Signature   v1= and the hexadecimal HMAC-SHA256, under the shared secret, of timestamp "." body
//
// Any answer from 200 to 299 takes the event. After 429, from 500 on, and where there is no answer it is sent again, at
// most so often and for so long as [MaxAttempts] and [MaxAge] say; any other answer drops it. What is not delivered is
// counted and logged: decisions never wait for a receiver.
package notify
