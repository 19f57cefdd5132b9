// Package settings checks what weir depends on in a Redis server: its role, version, mode, eviction and persistence.
package settings

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// Server is what a server reports of its settings.
type Server struct {
	Addr   string            // of a node of a cluster
	Info   map[string]string // of INFO
	Config map[string]string // of CONFIG GET; nil if the account may not read it
	Err    error             // if the settings could not be read
}

// Finding is the result of one check.
type Finding struct {
	Name   string
	Detail string // what was found
	Err    error  // if the server cannot be used like this
	Hint   string // what to do about Err
}

// Read reads the settings of a client's server, or of all nodes of its cluster at once. Replicas, which weir never
// uses, are left out. The result has no Config unless it is wanted.
func Read(ctx context.Context, c rueidis.Client, cluster, config bool) []Server {
	nodes := map[string]rueidis.Client{"": c}
	if cluster {
		nodes = c.Nodes()
	}
	all := make([]Server, 0, len(nodes))
	for addr := range nodes {
		all = append(all, Server{Addr: addr})
	}
	slices.SortFunc(all, func(a, b Server) int { return strings.Compare(a.Addr, b.Addr) })
	var read sync.WaitGroup
	for i := range all {
		s := &all[i]
		read.Go(func() { s.Err = s.read(ctx, nodes[s.Addr], config) })
	}
	read.Wait()
	return slices.DeleteFunc(all, func(s Server) bool { return cluster && s.Err == nil && s.Info["role"] != "master" })
}

func (s *Server) read(ctx context.Context, node rueidis.Client, config bool) error {
	text, err := node.Do(ctx, node.B().Info().Build()).ToString()
	if err != nil {
		return err
	}
	s.Info = make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			s.Info[key] = value
		}
	}
	if !config {
		return nil
	}
	s.Config, err = node.Do(ctx, node.B().ConfigGet().Parameter("save", "appendfsync").Build()).AsStrMap()
	if e, refused := rueidis.IsRedisErr(err); err != nil && (!refused || e.IsNil()) {
		return err
	}
	return nil
}

// Check returns the findings about a server, up to the first thing that is wrong. It must belong to a cluster or not.
// If volatile is set, it need not persist anything.
func (s Server) Check(cluster, volatile bool) (all []Finding) {
	checks := []func() Finding{
		s.role, s.version,
		func() Finding { return s.mode(cluster) },
		s.Eviction,
		func() Finding { return s.persistence(volatile) },
	}
	for _, check := range checks {
		f := check()
		if f.Name != "" {
			all = append(all, f)
		}
		if f.Err != nil {
			break
		}
	}
	return all
}

func (s Server) role() Finding {
	f := Finding{Name: "role", Detail: s.Info["role"]}
	if f.Detail != "master" {
		f.Err, f.Hint = fmt.Errorf("%w but a %s", ErrNotPrimary, f.Detail), "name the primary, or use sentinels"
	}
	return f
}

func (s Server) version() Finding {
	version := s.Info["redis_version"]
	f := Finding{Name: "version", Detail: "Redis " + version}
	if v := s.Info["valkey_version"]; v != "" {
		f.Detail = "Valkey " + v
	}
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 7 {
		f.Err, f.Hint = errors.New("the server is "+f.Detail), "use Redis 7 or later, or Valkey"
	}
	return f
}

// mode returns nothing if the server is in the right mode.
func (s Server) mode(cluster bool) Finding {
	switch clustered := s.Info["cluster_enabled"] == "1"; {
	case clustered && !cluster:
		return Finding{Name: "mode", Err: errors.New("the server belongs to a cluster"), Hint: "write redis+cluster://"}
	case !clustered && cluster:
		return Finding{
			Name: "mode", Err: errors.New("the server does not belong to a cluster"), Hint: "write redis://",
		}
	}
	return Finding{}
}

// Eviction checks that the server removes nothing to make room.
func (s Server) Eviction() Finding {
	f := Finding{Name: "eviction", Detail: s.Info["maxmemory_policy"]}
	if f.Detail != "noeviction" {
		f.Err = fmt.Errorf(
			"maxmemory-policy is %s: the tokens of an evicted bucket are handed out again", strconv.Quote(f.Detail),
		)
		f.Hint = "set maxmemory-policy noeviction"
	}
	return f
}

// accept is what to do about a server that loses everything and is to be used nevertheless.
const accept = "; to accept that a restart loses every bucket and every limit, as a service that relies on " +
	"replicas may, add ?volatile=true to the address"

// persistence checks that a restarted server has its data. Snapshots are enough: they keep the limits.
func (s Server) persistence(volatile bool) Finding {
	f := Finding{Name: "persistence"}
	switch sync, save := s.Config["appendfsync"], s.Config["save"]; {
	case s.Info["aof_enabled"] == "1" && sync != "":
		f.Detail = "append-only file, fsync " + sync
	case s.Info["aof_enabled"] == "1":
		f.Detail = "append-only file"
	case save != "":
		f.Detail = "snapshots only: a crash loses what was spent since the last one"
	case volatile:
		f.Detail = "none is known of, as accepted: a restart loses every bucket and every limit"
	case s.Config == nil:
		f.Err = errors.New("appendonly is no, and CONFIG GET is not permitted, so it is not known whether snapshots " +
			"are saved")
		f.Hint = "set appendonly yes, or permit +config|get" + accept
	default:
		f.Err = errors.New("nothing is persistent: appendonly is no, and no snapshots are saved, so a restart loses " +
			"every bucket and every limit")
		f.Hint = "set appendonly yes" + accept
	}
	return f
}
