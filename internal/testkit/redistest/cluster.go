package redistest

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/testkit/porttest"
)

// Shard is a primary of a cluster and its replicas.
type Shard []*Server

// Cluster runs a cluster of three primaries, with the given number of replicas each, until the test ends. It serves all
// slots, and the replicas have what their primaries have. Without redis-cli, the test is skipped.
func Cluster(t testing.TB, replicas int) (shards []Shard) {
	t.Helper()
	args := []string{"--cluster", "create"}
	var nodes []*Server
	for range 3 * (1 + replicas) {
		s := Start(t, "--cluster-enabled", "yes", "--cluster-port", porttest.Free(t), "--cluster-node-timeout", "2000")
		nodes, args = append(nodes, s), append(args, s.Addr)
	}
	cli := nodes[0].cli()
	if _, err := exec.LookPath(cli); err != nil {
		t.Skip("no redis-cli beside the server")
	}
	args = append(args, "--cluster-yes", "--cluster-replicas", fmt.Sprint(replicas))
	if out, err := exec.CommandContext(t.Context(), cli, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, s := range nodes {
		s.eventually(t, "cluster_state:ok", "CLUSTER", "INFO")
	}
	for _, s := range nodes[:3] {
		s.eventually(t, "role:master", "INFO", "replication")
		shards = append(shards, Shard{s})
	}
	for _, s := range nodes[3:] {
		s.eventually(t, "master_link_status:up", "INFO", "replication")
		role, err := s.Do(t.Context(), "ROLE") // slave, host, port, and more
		if err != nil {
			t.Fatalf("%v: %s", err, role)
		}
		words := strings.Fields(role)
		primary := net.JoinHostPort(words[1], words[2])
		of := slices.IndexFunc(shards, func(sh Shard) bool { return sh[0].Addr == primary })
		shards[of] = append(shards[of], s)
	}
	return shards
}

// Addresses returns the addresses of a cluster's servers, separated by commas.
func Addresses(shards []Shard) string {
	var all []string
	for _, s := range slices.Concat(shards...) {
		all = append(all, s.Addr)
	}
	return strings.Join(all, ",")
}

// cli returns the path of redis-cli.
func (s *Server) cli() string {
	dir, name := filepath.Split(s.cmd.Path)
	return filepath.Join(dir, strings.Replace(name, "-server", "-cli", 1))
}

// Do sends a command with redis-cli, and returns its answer.
func (s *Server) Do(ctx context.Context, words ...string) (string, error) {
	args := append([]string{"-u", "redis://" + s.Addr}, words...)
	out, err := exec.CommandContext(ctx, s.cli(), args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Replica reports whether the server is a replica.
func (s *Server) Replica(ctx context.Context) bool {
	role, err := s.Do(ctx, "ROLE")
	return err == nil && strings.HasPrefix(role, "slave")
}

// eventually waits until the answer to a command contains a text.
func (s *Server) eventually(t testing.TB, text string, words ...string) {
	t.Helper()
	var said string
	for began := time.Now(); time.Since(began) < time.Minute; {
		var err error
		if said, err = s.Do(t.Context(), words...); err == nil && strings.Contains(said, text) {
			return
		}
		time.Sleep(10 * time.Millisecond) // real time, because it is another process
	}
	t.Fatalf("no %s within a minute: %s", text, said)
}
