package governor

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/weirlimits/weir/governor"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/dynamoproxy"
	"github.com/weirlimits/weir/internal/serve/metrics"
)

// budgets are the rates in the values of --budget, and what follows tables' capacity.
type budgets struct {
	governor.Config

	followed []governor.Source
}

// readBudgets reads the values of --budget. The client describes tables of which a share is given.
func readBudgets(ctx context.Context, client governor.TableDescriber, texts []string) (budgets, error) {
	all := budgets{Config: governor.Config{Tables: make(map[string]governor.Limits)}}
	indexes := make(map[string]governor.Limits) // TABLE/INDEX
	for _, text := range texts {
		name, rates, named := strings.Cut(text, "=")
		if !named {
			name, rates = "", text
		}
		table, index, indexed := strings.Cut(name, "/")
		_, again := all.Tables[table]
		if indexed {
			_, again = indexes[name]
		}
		percent, share := strings.CutSuffix(rates, "%")
		limits, ok := limitsOf(rates)
		switch {
		case named && table == "" || indexed && (index == "" || strings.Contains(index, "/")):
			return all, kit.Usagef("--budget %q: write TABLE=READ:WRITE or TABLE/INDEX=READ:WRITE", text)
		case again || !named && all.ReadUnits != 0:
			return all, kit.Usagef("--budget %q: another --budget is for the same", text)
		case share && named && !indexed:
			if err := all.follow(ctx, client, table, percent); err != nil {
				return all, kit.Usagef("--budget %q: %w", text, err)
			}
		case !ok:
			return all, kit.Usagef(
				"--budget %q: write READ:WRITE in units per second, such as 1500:500 or 100:unlimited", text,
			)
		case indexed:
			indexes[name] = limits
		case named:
			all.Tables[table] = limits
		default:
			all.ReadUnits, all.WriteUnits = limits.ReadUnits, limits.WriteUnits
		}
	}
	return all, all.addIndexes(texts, indexes)
}

// addIndexes adds the budgets of indexes to those of their tables.
func (b *budgets) addIndexes(texts []string, indexes map[string]governor.Limits) error {
	for _, name := range slices.Sorted(maps.Keys(indexes)) {
		table, index, _ := strings.Cut(name, "/")
		t, ok := b.Tables[table]
		switch {
		case !ok:
			return kit.Usagef("--budget %s: the table %s needs a --budget, too", name, table)
		case slices.ContainsFunc(texts, func(s string) bool {
			return strings.HasPrefix(s, table+"=") && strings.HasSuffix(s, "%")
		}):
			return kit.Usagef("--budget %s: the share of the table %s is one of its indexes, too", name, table)
		}
		if t.Indexes == nil {
			t.Indexes = make(map[string]governor.Limits)
		}
		t.Indexes[index] = indexes[name]
		b.Tables[table] = t
	}
	return nil
}

// follow adds a share of what a table has.
func (b *budgets) follow(ctx context.Context, client governor.TableDescriber, table, percent string) error {
	n, err := strconv.ParseFloat(percent, 64)
	if err != nil || !(n > 0 && n <= 100) {
		return errors.New("a share is above 0% and at most 100%")
	}
	source := governor.Discovered(client, n/100, table)
	ctx, cancel := context.WithTimeout(ctx, kit.Patience)
	defer cancel()
	found, err := source(ctx)
	maps.Copy(b.Tables, found.Tables)
	b.followed = append(b.followed, source)
	return err
}

func limitsOf(rates string) (l governor.Limits, ok bool) {
	read, write, ok := strings.Cut(rates, ":")
	if !ok {
		return l, false
	}
	if l.ReadUnits, ok = rateOf(read); !ok {
		return l, false
	}
	l.WriteUnits, ok = rateOf(write)
	return l, ok
}

func rateOf(text string) (float64, bool) {
	if text == "unlimited" {
		return governor.Unlimited, true
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && n > 0 && n < governor.Unlimited
}

// inBudget returns a mistake in the configuration as one in the flag that it is from.
func inBudget(err error) error {
	var bad *governor.ConfigError
	if !errors.As(err, &bad) {
		return err
	}
	if bad.Field == "Coordinator" {
		return kit.Usagef("--fleet %s", bad.Reason)
	}
	return kit.Usagef("--budget: %s %s", bad.Field, bad.Reason)
}

// clientKey reads ACCESS_KEY_ID:SECRET_ACCESS_KEY.
func clientKey(text secret.Text) (aws.Credentials, error) {
	if !text.Given() {
		return aws.Credentials{}, nil
	}
	id, key, ok := strings.Cut(text.Reveal(), ":")
	if !ok || id == "" || len(key) < leastSecret || strings.ContainsAny(id, "/, =") {
		return aws.Credentials{}, kit.Usagef("the key of --access-key-file or WEIR_GOVERNOR_PROXY_ACCESS_KEY is not " +
			"ACCESS_KEY_ID:SECRET_ACCESS_KEY with a secret of 16 characters or more")
	}
	return aws.Credentials{AccessKeyID: id, SecretAccessKey: key}, nil
}

const leastSecret = 16

// checkListen refuses an address that others can reach, unless that is safe.
func checkListen(address string, safe bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return kit.Usagef("--listen %q is not HOST:PORT, such as 127.0.0.1:8000", address)
	}
	ip, err := netip.ParseAddr(host)
	if safe || host == "localhost" || err == nil && ip.IsLoopback() {
		return nil
	}
	return kit.Usagef("--listen %q can be reached from other machines, which could then do what the proxy's AWS "+
		"credentials may: use --access-key-file with --tls-cert and --tls-key, or 127.0.0.1, or --insecure", address)
}

// report adds the metrics of a proxy to a scrape, beside those of its governor.
func report(s *metrics.Scrape, counts dynamoproxy.Counts) {
	s.Counter("weir_governor_requests_total", "Requests to the proxy, by what became of them.",
		metrics.Value(counts.Passed, "result", "passed"), metrics.Value(counts.Refused, "result", "refused"),
		metrics.Value(counts.Failed, "result", "failed"))
}
