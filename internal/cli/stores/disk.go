package stores

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/store/disk"
)

// diskConfig parses PATH?mode=…&interval=…&usage=….
func diskConfig(address, rest string) (string, *disk.Config, error) {
	path, query, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
	if path == "" {
		return "", nil, storeUsage("store %q names no folder: write disk:./weir-data", address)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", nil, storeUsage("store %q: %w", address, err)
	}
	cfg := &disk.Config{}
	for key, all := range values {
		if err := diskOption(cfg, address, key, all[len(all)-1]); err != nil {
			return "", nil, err
		}
	}
	return path, cfg, nil
}

func diskOption(cfg *disk.Config, address, key, value string) error {
	switch key {
	case "mode":
		cfg.Mode = disk.Mode(value)
		if !slices.Contains(disk.Modes, cfg.Mode) {
			return storeUsage("store %q: mode %q must be ahead, always, interval or off", address, value)
		}
	case "interval":
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return storeUsage("store %q: interval %q is not a duration such as 1s", address, value)
		}
		cfg.Interval = d
	case "usage":
		switch value {
		case "on":
		case "off":
			cfg.UsageInterval = -1
		default:
			return storeUsage("store %q: usage %q must be on or off", address, value)
		}
	case "usage_retention_hourly":
		return retention(&cfg.Retention.Hourly, address, key, value)
	case "usage_retention_daily":
		return retention(&cfg.Retention.Daily, address, key, value)
	case "usage_retention_monthly":
		return retention(&cfg.Retention.Monthly, address, key, value)
	default:
		return storeUsage(
			"store %q: unknown option %q: the options are mode, interval, usage and usage_retention_hourly, _daily "+
				"and _monthly",
			address, key,
		)
	}
	return nil
}

// maxRetention is about the longest time that fits in a time.Duration.
const maxRetention = 100_000 // days

// retention parses a number of days, such as 90d, or forever.
func retention(to *time.Duration, address, key, value string) error {
	if value == "forever" {
		*to = -1
		return nil
	}
	digits, days := strings.CutSuffix(value, "d")
	n, err := strconv.Atoi(digits)
	if !days || err != nil || n < 1 || n > maxRetention {
		return storeUsage("store %q: %s %q must be a number of days, such as 90d, or forever", address, key, value)
	}
	*to = time.Duration(n) * 24 * time.Hour
	return nil
}
