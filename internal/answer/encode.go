package answer

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy/record"
)

// AppendString appends a JSON string.
func AppendString(b []byte, s string) []byte {
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

// AppendSeconds appends a duration in seconds, rounded up to milliseconds so that a client that waits this long has
// waited enough.
func AppendSeconds(b []byte, d time.Duration) []byte {
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

// appendRetry appends the time until a retry helps: null for the longest duration, of a balance.
func appendRetry(b []byte, d time.Duration) []byte {
	if d == math.MaxInt64 {
		return append(b, "null"...)
	}
	return AppendSeconds(b, d)
}

// AppendStatuses appends the statuses of limits as a JSON array.
func AppendStatuses(b []byte, ss []weir.LimitStatus) []byte {
	b = append(b, '[')
	for i := range ss {
		s := &ss[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(append(b, `{"entity":`...), s.Entity)
		b = AppendString(append(b, `,"resource":`...), s.Resource)
		b = AppendString(append(b, `,"limit":`...), s.Limit)
		b = AppendString(append(b, `,"source":`...), string(s.Source))
		if s.Manifest != "" {
			b = AppendString(append(b, `,"manifest":`...), s.Manifest)
		}
		b = strconv.AppendInt(append(b, `,"requested":`...), s.Requested, 10)
		b = strconv.AppendInt(append(b, `,"available":`...), s.Available, 10)
		b = strconv.AppendInt(append(b, `,"amount":`...), s.Amount, 10)
		b = AppendString(append(b, `,"period":`...), periodText(s))
		b = strconv.AppendInt(append(b, `,"burst":`...), s.Burst, 10)
		b = AppendSeconds(append(b, `,"full_in":`...), s.Full)
		if s.Ends > 0 {
			b = AppendSeconds(append(b, `,"ends_in":`...), s.Ends)
		}
		if s.Refused {
			b = appendRetry(append(b, `,"refused":true,"retry_after":`...), s.RetryAfter)
		}
		if s.Refused && s.Estimated {
			b = append(b, `,"estimated":true`...)
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

// AppendBalances appends balances as a JSON array.
func AppendBalances(b []byte, balances []weir.Balance) []byte {
	b = append(b, '[')
	for i := range balances {
		l := &balances[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(append(b, `{"entity":`...), l.Entity)
		b = AppendString(append(b, `,"resource":`...), l.Resource)
		b = AppendString(append(b, `,"limit":`...), l.Limit)
		b = strconv.AppendInt(append(b, `,"available":`...), l.Available, 10)
		if l.RetryAfter > 0 {
			b = appendRetry(append(b, `,"retry_after":`...), l.RetryAfter)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// periodText returns a period or window as in the text form of limits.
func periodText(s *weir.LimitStatus) string {
	switch s.Period {
	case time.Second:
		return "s"
	case time.Minute:
		return "min"
	case time.Hour:
		return "hour"
	case 24 * time.Hour:
		return "day"
	}
	return record.FormatPeriod(s.Period, s.Window, s.Heal)
}
