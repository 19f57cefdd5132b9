package storeurl

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
)

// diskOptions are the options of disk:PATH?mode=…. What is not given stays as the store's default.
type diskOptions struct {
	Mode     disk.Mode     `json:"mode" values:"ahead,always,interval,off"`
	Interval time.Duration `json:"interval" range:"1ms.."`
	Usage    string        `json:"usage" values:"on,off"`
	Hourly   days          `json:"usage_retention_hourly"`
	Daily    days          `json:"usage_retention_daily"`
	Monthly  days          `json:"usage_retention_monthly"`
}

// diskConfig parses PATH?mode=…&interval=…&usage=….
func diskConfig(address secret.Address, rest string) (string, *disk.Config, error) {
	path, query, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
	if path == "" {
		return "", nil, Mistakef("store %q names no folder: write disk:./weir-data", address)
	}
	var o diskOptions
	if err := setOptions(address, query, &o); err != nil {
		return "", nil, err
	}
	cfg := &disk.Config{Mode: o.Mode, Interval: o.Interval}
	if o.Usage == "off" {
		cfg.UsageInterval = -1
	}
	r := &cfg.Retention
	r.Hourly, r.Daily, r.Monthly = time.Duration(o.Hourly), time.Duration(o.Daily), time.Duration(o.Monthly)
	return path, cfg, nil
}

func openDisk(_ context.Context, address secret.Address, rest string, how How) (store.Store, error) {
	path, cfg, err := diskConfig(address, rest)
	if err != nil {
		return nil, err
	}
	cfg.MustExist, cfg.Now = !how.Create, how.Now
	return disk.Open(path, cfg)
}

// days is a number of days as a duration, such as 90d; negative is forever.
type days time.Duration

// maxDays is about the longest time that fits in a time.Duration.
const maxDays = 100_000

var errDays = errors.New("must be a number of days, such as 90d, or forever")

// UnmarshalText parses 90d or forever.
func (d *days) UnmarshalText(text []byte) error {
	if string(text) == "forever" {
		*d = -1
		return nil
	}
	digits, ok := strings.CutSuffix(string(text), "d")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || n > maxDays {
		return errDays
	}
	*d = days(time.Duration(n) * 24 * time.Hour)
	return nil
}

// Restore makes the store on disk at an address from a copy, as [disk.Restore]. With replace, an existing store is
// moved to its path with .replaced at the end. It returns the store's folder, or "" for a store of another kind.
func Restore(address secret.Address, from string, replace bool) (dir string, err error) {
	scheme, rest, err := Split(address)
	if err != nil || scheme != "disk" {
		return "", err
	}
	dir, _, err = diskConfig(address, rest)
	if err != nil {
		return "", err
	}
	aside := ""
	if replace {
		aside = filepath.Clean(dir) + ".replaced"
	}
	return dir, disk.Restore(from, dir, aside)
}
