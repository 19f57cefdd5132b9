package server

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirlimits/weir"
)

// What every decision answers with is appended by hand: encoding/json would be a third of the request's cost.

// appendString appends a JSON string.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	plain := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(append(b, s[plain:i]...), `\ufffd`...)
				plain = i + 1
			}
			i += n
			continue
		}
		i++
		if c >= ' ' && c != '"' && c != '\\' && c != 0x7f {
			continue
		}
		b = append(b, s[plain:i-1]...)
		plain = i
		if c == '"' || c == '\\' {
			b = append(b, '\\', c)
		} else {
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, s[plain:]...), '"')
}

// appendTime appends an instant as a JSON string.
func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

// appendSeconds appends a duration in seconds, rounded up to milliseconds: whoever waits so long has waited enough.
func appendSeconds(b []byte, d time.Duration) []byte {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	b = strconv.AppendInt(b, ms/1000, 10)
	if frac := ms % 1000; frac != 0 {
		b = append(b, '.', byte('0'+frac/100), byte('0'+frac/10%10), byte('0'+frac%10))
		for b[len(b)-1] == '0' {
			b = b[:len(b)-1]
		}
	}
	return b
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

// appendStatuses appends the statuses of limits as a JSON array.
func appendStatuses(b []byte, ss []weir.LimitStatus) []byte {
	b = append(b, '[')
	for i := range ss {
		s := &ss[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"entity":`...), s.Entity)
		b = appendString(append(b, `,"resource":`...), s.Resource)
		b = appendString(append(b, `,"limit":`...), s.Limit)
		b = appendString(append(b, `,"source":`...), string(s.Source))
		b = strconv.AppendInt(append(b, `,"requested":`...), s.Requested, 10)
		b = strconv.AppendInt(append(b, `,"available":`...), s.Available, 10)
		b = strconv.AppendInt(append(b, `,"amount":`...), s.Amount, 10)
		b = appendString(append(b, `,"period":`...), periodText(s.Period))
		b = strconv.AppendInt(append(b, `,"burst":`...), s.Burst, 10)
		b = appendSeconds(append(b, `,"full_in":`...), s.Full)
		if s.Refused {
			b = appendSeconds(append(b, `,"refused":true,"retry_after":`...), s.RetryAfter)
		}
		if s.Shadow {
			b = append(b, `,"shadow":true`...)
		}
		if s.WouldRefuse {
			b = append(b, `,"would_refuse":true`...)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// periodText is a period in the text form of limits.
func periodText(d time.Duration) string {
	switch d {
	case time.Second:
		return "s"
	case time.Minute:
		return "min"
	case time.Hour:
		return "hour"
	case 24 * time.Hour:
		return "day"
	}
	_, period, _ := strings.Cut(weir.Limit{Amount: 1, Period: d, Burst: 1}.String(), "/")
	return period
}
