package governor

import (
	"errors"
	"net"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

const (
	cutEvery   = int64(time.Second)     // throttled calls that were in flight together count as one
	raiseEvery = 100 * time.Millisecond // while a ceiling rises
)

// cut lowers the rate to 70 % of what was just used, at most once a second.
func (b *budget) cut(now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.meter.throttles++
	if b.share == 0 || b.cutAt != 0 && now-b.cutAt < cutEvery {
		return
	}
	base := min(b.rate(), max(b.meter.lastSecond(now), b.share/10, 1))
	b.ceiling = max(base*7/10, b.share/100, 1)
	b.step = max(base/20, b.share/50, 1)
	b.cutAt, b.raisedAt = now, now
	b.follow(now)
	b.level += max(0, b.available(now)) // what had been saved up is lost
}

// raise lets a ceiling rise by its step per second, until it is gone. The lock is held.
func (b *budget) raise(now int64) {
	passed := now - b.raisedAt
	if b.ceiling == 0 || passed < int64(raiseEvery) {
		return
	}
	b.raisedAt = now
	b.ceiling += max(1, int64(float64(b.step)*time.Duration(passed).Seconds()))
	if b.ceiling >= max(b.share, 1) {
		b.ceiling = 0
	}
	b.follow(now)
}

// throttled returns the reasons of a throttling error. ok is false if err is not one.
func throttled(err error) (reasons []types.ThrottlingReason, ok bool) {
	var provisioned *types.ProvisionedThroughputExceededException
	var rate *types.ThrottlingException
	var limit *types.RequestLimitExceeded
	var cancelled *types.TransactionCanceledException
	var api smithy.APIError
	switch {
	case errors.As(err, &provisioned):
		return provisioned.ThrottlingReasons, true
	case errors.As(err, &rate):
		return rate.ThrottlingReasons, true
	case errors.As(err, &limit):
		return limit.ThrottlingReasons, true
	case errors.As(err, &cancelled):
		for _, r := range cancelled.CancellationReasons {
			switch aws.ToString(r.Code) {
			case "ThrottlingError", "ProvisionedThroughputExceeded":
				return nil, true
			}
		}
		return nil, false
	case errors.As(err, &api):
		switch api.ErrorCode() {
		case "ThrottlingException", "ThrottledException", "RequestLimitExceeded",
			"ProvisionedThroughputExceededException":
			return nil, true
		}
	}
	return nil, false
}

// attempted records a failed attempt.
func (c *call) attempted(err error) {
	if reasons, ok := throttled(err); ok {
		c.feedback(reasons)
		return
	}
	var dial *net.OpError
	if !c.sent || errors.As(err, &dial) && dial.Op == "dial" {
		return // it costs nothing
	}
	var answer interface{ HTTPStatusCode() int }
	if !errors.As(err, &answer) || answer.HTTPStatusCode()/100 != 4 {
		c.unknown++
	}
}

// feedback lowers the budgets that a throttled attempt concerns: those that the reasons name, otherwise the call's own.
func (c *call) feedback(reasons []types.ThrottlingReason) {
	now := c.g.now()
	if len(reasons) == 0 {
		c.cutAll(now, "")
		return
	}
	for _, r := range reasons {
		reason := aws.ToString(r.Reason)
		table, index := resourceNames(aws.ToString(r.Resource))
		dir := c.dir
		switch {
		case strings.Contains(reason, "Read"):
			dir = Read
		case strings.Contains(reason, "Write"):
			dir = Write
		}
		b := c.g.account[dir]
		if table != "" && (b == nil || !strings.Contains(reason, "AccountLimit")) {
			b = c.g.tableOf(table).budget(index, dir)
		}
		switch {
		case strings.Contains(reason, "KeyRange"):
			if b != nil {
				b.mu.Lock()
				b.meter.hotKeys++
				b.mu.Unlock()
			}
		case table == "" && !strings.Contains(reason, "AccountLimit"):
			c.cutAll(now, "")
		case b != nil:
			b.cut(now)
		}
	}
}

// cutAll lowers the narrow budgets of a call; if a table is named, only those of that table.
func (c *call) cutAll(now int64, table string) {
	var done *budget
	for _, p := range c.parts {
		b := p.budget()
		if b != nil && b != done && (table == "" || p.t.name == table) {
			b.cut(now)
			done = b
		}
	}
}

// resourceNames returns the table and index from arn:aws:dynamodb:region:account:table/NAME/index/NAME, or from a name.
func resourceNames(resource string) (table, index string) {
	if strings.HasPrefix(resource, "arn:") {
		_, rest, ok := strings.Cut(resource, ":table/")
		if !ok {
			return "", ""
		}
		resource = rest
	}
	table, rest, _ := strings.Cut(resource, "/")
	if kind, name, _ := strings.Cut(rest, "/"); kind == "index" {
		index = name
	}
	return table, index
}
