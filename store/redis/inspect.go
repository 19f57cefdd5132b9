package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/store"
)

// formatVersion is the version of the layout that this version of weir reads and writes.
const formatVersion = "1"

// Finding is the result of one check by [Inspect].
type Finding struct {
	Name   string // version, eviction, …
	Detail string // what was found
	Err    error  // an *[store.Error] if the store cannot be used like this
}

// Inspect connects to a server and checks it. It stops at the first failed check, whose finding is the last.
func Inspect(ctx context.Context, cfg Config) []Finding {
	s, err := connect(ctx, cfg)
	if err != nil {
		return []Finding{{Name: "connection", Err: err}}
	}
	defer s.Close()
	return append([]Finding{{Name: "connection", Detail: s.where()}}, s.inspect(ctx)...)
}

func (s *Store) inspect(ctx context.Context) []Finding {
	var all []Finding
	add := func(name, detail string, err error) bool {
		var known *store.Error
		if err != nil && !errors.As(err, &known) {
			err = s.trouble("open", "", err)
		}
		all = append(all, Finding{name, detail, err})
		return err == nil
	}
	wrong := func(hint, format string, args ...any) error {
		return &store.Error{Op: "open", Key: s.where(), Err: fmt.Errorf(format, args...), Hint: hint}
	}
	infos, err := s.infos(ctx)
	if err != nil {
		add("server", "", err)
		return all
	}
	for _, info := range infos {
		if !add("role", info["role"], func() error {
			if r := info["role"]; r != "master" {
				return wrong("name the primary, or use sentinels", "%w but a %s", errNotPrimary, r)
			}
			return nil
		}()) {
			return all
		}
		version, name := info["redis_version"], "Redis "+info["redis_version"]
		if v := info["valkey_version"]; v != "" {
			name = "Valkey " + v
		}
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); err != nil || n < 7 {
			err := wrong("use Redis 7 or later, or Valkey", "the server is %s", name)
			add("version", name, err)
			return all
		}
		add("version", name, nil)
		if clustered := info["cluster_enabled"] == "1"; clustered != s.cluster {
			err := wrong("write redis://", "the server does not belong to a cluster")
			if clustered {
				err = wrong("write redis+cluster://", "the server belongs to a cluster")
			}
			add("mode", "", err)
			return all
		}
		if p := info["maxmemory_policy"]; p != "noeviction" {
			add(
				"eviction", p,
				wrong(
					"set maxmemory-policy noeviction",
					"maxmemory-policy is %s: the tokens of an evicted bucket are handed out again", p,
				),
			)
			return all
		}
		add("eviction", "noeviction", nil)
	}
	got, err := s.run(ctx, openScript, []string{s.keys.format()}, []string{formatVersion}).ToString()
	if err == nil && got != formatVersion {
		err = wrong(
			"upgrade weir", "the layout is of version %s, and this weir knows %s", strconv.Quote(got), formatVersion,
		)
	}
	add("format", "version "+formatVersion, err)
	return all
}

// infos reads INFO from the server, or from each primary of a cluster.
func (s *Store) infos(ctx context.Context) ([]map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	c := *s.client.Load()
	nodes := map[string]rueidis.Client{"": c}
	if s.cluster {
		nodes = c.Nodes()
	}
	var all []map[string]string
	for _, node := range nodes {
		text, err := node.Do(ctx, node.B().Info().Build()).ToString()
		if err != nil {
			return nil, err
		}
		info := make(map[string]string)
		for line := range strings.Lines(text) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				info[key] = value
			}
		}
		if s.cluster && info["role"] != "master" {
			continue // a replica, which weir never uses
		}
		all = append(all, info)
	}
	return all, nil
}
