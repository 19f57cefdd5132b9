package stores

import (
	"net/url"
	"strings"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/api/storeurl"
	"github.com/weirlimits/weir/store/redis"
)

func dynamoSends(address secret.Address, _ func(string) (string, bool)) string {
	if d, err := storeurl.ParseDynamoDB(address); err != nil || d.Endpoint == "" || d.Local() {
		return ""
	}
	return "an AWS signature"
}

func redisSends(_ secret.Address, env func(string) (string, bool)) string {
	for _, name := range []string{storeurl.RedisPassword, storeurl.SentinelPassword} {
		for _, name := range []string{name, name + "_FILE"} {
			if _, ok := env(name); ok {
				return name
			}
		}
	}
	return ""
}

// Warning returns what an operator should know about a store at an address, or "".
func Warning(address secret.Address) string {
	_, query, _ := strings.Cut(string(address), "?")
	if options, err := url.ParseQuery(query); err == nil && options.Get("volatile") == "true" && IsRedis(address) {
		return "volatile=true: the server may lose every bucket and every limit when it restarts"
	}
	return ""
}

// IsRedis reports whether an address names a Redis store.
func IsRedis(address secret.Address) bool {
	scheme, _, _ := strings.Cut(string(address), ":")
	return redis.Knows(scheme)
}
