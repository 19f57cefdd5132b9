package redis_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"":                                      "not an address",
		"localhost:6379":                        "not an address",
		"http://h":                              "not an address",
		"redis:h":                               "not an address",
		"unix+sentinel:///x/m":                  "not an address",
		"redis+magic://h":                       "not an address",
		"redis://":                              "names no server",
		"redis://h:0":                           "no port",
		"redis://h:port":                        "no port",
		"redis://a,b":                           "several servers",
		"redis://h/zero":                        `database "zero"`,
		"redis://h/-1":                          `database "-1"`,
		"redis://h?timeout=1s":                  `unknown option "timeout"`,
		"redis://h?volatile=1":                  `the option volatile must be true or false, not "1"`,
		"redis://h?margin=1ms":                  `the option margin must be at least 1s, such as 10m, not "1ms"`,
		"redis://h?margin=ten":                  `not "ten"`,
		"redis://h?prefix={x}":                  "brace",
		"redis://u:%zz@h":                       "escape",
		"unix://":                               "no socket",
		"unix://host/path":                      "no socket",
		"redis+sentinel://h":                    "names no primary",
		"redis+cluster://h/1":                   "numbered databases",
		"redis+cluster://a,,b":                  "names no server",
		"rediss+sentinel://user:pw@a,b:1/m/99x": `database "99x"`,
	} {
		_, err := redis.Open(t.Context(), redis.Config{Address: address})
		var known *store.Error
		if !errors.Is(err, store.ErrInvalid) || !errors.As(err, &known) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", address, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "pw") {
			t.Errorf("%q: the error tells the password: %v", address, err)
		}
	}
	for name, cfg := range map[string]redis.Config{
		"Prefix": {Prefix: "a{b"}, "CallTimeout": {CallTimeout: -1}, "Margin": {Margin: 1}, "Connections": {Connections: 3},
	} {
		cfg.Address = "redis://127.0.0.1:1"
		if _, err := redis.Open(t.Context(), cfg); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// The options in an address determine the connection.
func TestAddressOptions(t *testing.T) {
	t.Parallel()
	addr := shared(t).Addr
	p := prefix()
	a := open(t, redis.Config{Address: "redis://" + addr + "/3?prefix=" + p})
	b := open(t, redis.Config{Address: "valkey://" + addr + "/3", Prefix: p})
	other := open(t, redis.Config{Address: "redis://" + addr + "/4", Prefix: p})
	if ok, err := take(t, a, one("alice", still(10), 7)); !ok || err != nil {
		t.Fatalf("allowed %t, error %v", ok, err)
	}
	if ok, err := take(t, b, one("alice", still(10), 4)); ok || err != nil {
		t.Errorf("the same database and prefix: allowed %t, error %v", ok, err)
	}
	if ok, err := take(t, other, one("alice", still(10), 4)); !ok || err != nil {
		t.Errorf("another database: allowed %t, error %v", ok, err)
	}
}
