//go:build unix

package weir_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/disk"
)

// fullEnv makes the test binary a process on a full disk: the policy, whether one token is taken before the disk is
// full, and the directory.
const fullEnv = "WEIR_TEST_FULL_DISK"

// onFullDisk admits what it can, prints a line for each token, and then waits to be killed. Its disk is full once it
// has opened the store: no file may grow, nor be written to.
func onFullDisk(args string) error {
	policy, args, _ := strings.Cut(args, "|")
	first, dir, _ := strings.Cut(args, "|")
	s, err := disk.Open(dir, nil)
	if err != nil {
		return err
	}
	lim, err := weir.New(weir.Config{Store: s, OnUnavailable: weir.OnUnavailable(policy)})
	if err != nil {
		return err
	}
	ctx := context.Background()
	acquire := func() error {
		_, err := lim.Acquire(ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"quota": 1}})
		if err == nil {
			fmt.Println("admitted")
		}
		return err
	}
	if first == "true" {
		if err := acquire(); err != nil {
			return err
		}
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{}); err != nil {
		return err
	}
	for range 300 {
		if err := acquire(); err != nil && !errors.Is(err, weir.ErrUnavailable) && !errors.Is(err, weir.ErrExceeded) {
			return err
		}
	}
	fmt.Println("done")
	select {} // until it is killed
}

// A process whose disk is full is killed, again and again. With deny, no more is admitted than the limit has, whatever
// happens. With local, each life may admit a burst, because nobody keeps what it admitted.
func TestDiskFullAndKilled(t *testing.T) {
	t.Parallel()
	if args := os.Getenv(fullEnv); args != "" {
		t.Fatal(onFullDisk(args))
	}
	const burst, lives = 100, 6
	for _, policy := range []weir.OnUnavailable{weir.OnUnavailableDeny, weir.OnUnavailableLocal} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s, err := disk.Open(dir, nil)
			must(t, err)
			lim, err := weir.New(weir.Config{Store: s})
			must(t, err)
			quota := weir.Limit{Name: "quota", Amount: 1, Period: 366 * 24 * time.Hour, Burst: burst}
			must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, quota))
			must(t, lim.Close())
			total := 0
			for life := range lives {
				n := admittedOnFullDisk(t, fmt.Sprintf("%s|%t|%s", policy, life%2 == 0, dir))
				if n > burst-total && policy == weir.OnUnavailableDeny {
					t.Errorf("life %d: %d admitted, %d were left", life, n, burst-total)
				}
				if n > burst {
					t.Errorf("life %d: %d admitted of %d", life, n, burst)
				}
				t.Logf("life %d: %d admitted", life, n)
				total += n
			}
			if policy == weir.OnUnavailableLocal && total <= burst {
				t.Errorf("%d admitted in %d lives: local may be the default on disk", total, lives)
			}
			if total < lives/2 {
				t.Errorf("only %d admitted", total)
			}
		})
	}
}

// admittedOnFullDisk runs a process until it is done, kills it, and returns how many tokens it admitted.
func admittedOnFullDisk(t *testing.T, args string) (n int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDiskFullAndKilled$")
	cmd.Env, cmd.Stderr = append(os.Environ(), fullEnv+"="+args), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	must(t, err)
	for in := bufio.NewScanner(out); in.Scan() && in.Text() == "admitted"; {
		n++
	}
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("the process ended by itself: %v", err)
	}
	return n
}
