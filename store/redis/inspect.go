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

func (s *server) inspect(ctx context.Context) []Finding {
	in := inspection{s: s}
	infos, err := s.infos(ctx)
	if err != nil {
		in.add("server", "", err)
		return in.all
	}
	for _, info := range infos {
		if !in.server(info) {
			return in.all
		}
	}
	got, err := s.run(ctx, openScript, []string{s.keys.format()}, []string{formatVersion}).ToString()
	if err == nil && got != formatVersion {
		err = in.wrong(
			"upgrade weir", "the layout is of version %s, and this weir knows %s", strconv.Quote(got), formatVersion,
		)
	}
	in.add("format", "version "+formatVersion, err)
	return in.all
}

// inspection collects what was found.
type inspection struct {
	s   *server
	all []Finding
}

// add adds a finding, and reports whether it is good.
func (in *inspection) add(name, detail string, err error) bool {
	var known *store.Error
	if err != nil && !errors.As(err, &known) {
		err = in.s.trouble("open", "", err)
	}
	in.all = append(in.all, Finding{name, detail, err})
	return err == nil
}

func (in *inspection) wrong(hint, format string, args ...any) error {
	return &store.Error{Op: "open", Key: in.s.where(), Err: fmt.Errorf(format, args...), Hint: hint}
}

// server inspects what one server reports of itself, up to the first thing that is wrong.
func (in *inspection) server(info map[string]string) bool {
	var err error
	if r := info["role"]; r != "master" {
		err = in.wrong("name the primary, or use sentinels", "%w but a %s", errNotPrimary, r)
	}
	if !in.add("role", info["role"], err) {
		return false
	}
	version, name := info["redis_version"], "Redis "+info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		name = "Valkey " + v
	}
	major, _, _ := strings.Cut(version, ".")
	if n, bad := strconv.Atoi(major); bad != nil || n < 7 {
		err = in.wrong("use Redis 7 or later, or Valkey", "the server is %s", name)
	}
	if !in.add("version", name, err) {
		return false
	}
	switch clustered := info["cluster_enabled"] == "1"; {
	case clustered && !in.s.cluster:
		return in.add("mode", "", in.wrong("write redis+cluster://", "the server belongs to a cluster"))
	case !clustered && in.s.cluster:
		return in.add("mode", "", in.wrong("write redis://", "the server does not belong to a cluster"))
	}
	p := info["maxmemory_policy"]
	if p != "noeviction" {
		err = in.wrong(
			"set maxmemory-policy noeviction",
			"maxmemory-policy is %s: the tokens of an evicted bucket are handed out again", p,
		)
	}
	return in.add("eviction", p, err)
}

// infos reads INFO from the server, or from each primary of a cluster.
func (s *server) infos(ctx context.Context) ([]map[string]string, error) {
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
