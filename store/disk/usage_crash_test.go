package disk_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
)

// usageChildEnv makes the test binary the child of TestTortureUsage. It holds mode, directory and the number of debits per
// bucket.
const usageChildEnv = "WEIR_DISK_USAGE_CHILD"

const (
	usageBuckets = 10_000
	usageWorkers = 250
	usageBurst   = 200 // tokens
	usageStretch = 20  // the most that is reserved ahead of it
)

func usageKey(i int) store.Bucket {
	return store.Bucket{Namespace: "n", Entity: fmt.Sprintf("e%05d", i), Resource: "api"}
}

// tallies is a file that counts each bucket's debits before and after each debit. The system keeps it when the process is
// killed.
type tallies struct{ f *os.File }

func openTallies(dir string) (tallies, error) {
	f, err := os.OpenFile(filepath.Join(dir, "tallies"), os.O_RDWR|os.O_CREATE, 0o600)
	return tallies{f}, err
}

func (c tallies) put(bucket, which int, n int64) {
	var raw [8]byte
	binary.LittleEndian.PutUint64(raw[:], uint64(n))
	if _, err := c.f.WriteAt(raw[:], int64(bucket*16+which*8)); err != nil {
		panic(err)
	}
}

// read returns how many debits of each bucket were begun and answered.
func (c tallies) read() (begun, answered [usageBuckets]int64, total int64) {
	raw := make([]byte, usageBuckets*16)
	_, _ = c.f.ReadAt(raw, 0)
	for i := range begun {
		begun[i] = int64(binary.LittleEndian.Uint64(raw[i*16:]))
		answered[i] = int64(binary.LittleEndian.Uint64(raw[i*16+8:]))
		total += answered[i]
	}
	return begun, answered, total
}

// debitAll debits every bucket, one token at a time, until each has had the given number of debits.
func debitAll(s *disk.Store, c tallies, each int64) error {
	begun, _, _ := c.read()
	errs := make(chan error, usageWorkers)
	var wg sync.WaitGroup
	l := still("tpm", usageBurst)
	for w := range usageWorkers {
		wg.Go(func() {
			for n := range each {
				for b := w; b < usageBuckets; b += usageWorkers {
					if begun[b]+n >= each {
						continue
					}
					c.put(b, 0, begun[b]+n+1)
					out, err := s.Take(context.Background(), store.Take{Debits: []store.Debit{debit(usageKey(b), l, 1)}})
					if err != nil || !out.Allowed {
						errs <- fmt.Errorf("bucket %d: %v, %w", b, out.Allowed, err)
						return
					}
					c.put(b, 1, begun[b]+n+1)
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// usageChild is the child of TestTortureUsage.
func usageChild() {
	parts := strings.Split(os.Getenv(usageChildEnv), "|")
	if len(parts) != 3 {
		return
	}
	var each int64
	_, _ = fmt.Sscan(parts[2], &each)
	c, err := openTallies(parts[1])
	if err == nil {
		var s *disk.Store
		if s, err = disk.Open(parts[1], &disk.Config{Mode: disk.Mode(parts[0]), UsageInterval: 100 * time.Millisecond}); err == nil {
			s.NoSync() // only the process is killed, not the system
			err = debitAll(s, c, each)
		}
	}
	fmt.Fprintln(os.Stderr, "the child came to its end:", err)
	os.Exit(1) //nolint:revive // this is the child's main
}

// usageOf returns the consumption of each bucket and of the namespace, by windows of one type.
func usageOf(t *testing.T, s *disk.Store, w store.Window) (each map[string]int64, all int64) {
	t.Helper()
	each = map[string]int64{}
	for _, of := range []store.UsageOf{store.OfBucket, store.OfNamespace} {
		q := store.UsageQuery{Namespace: "n", Of: of, Window: w, From: noon.AddDate(-50, 0, 0), To: noon.AddDate(50, 0, 0), Max: 1000}
		for {
			page, err := s.Usage(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Records {
				for _, c := range r.Counts {
					if c.Limit != "tpm" {
						continue
					}
					if of == store.OfNamespace {
						all += c.Consumed() / 1000
					} else {
						each[r.ID] += c.Consumed() / 1000
					}
				}
			}
			if q.After = page.Next; q.After == "" {
				break
			}
		}
	}
	return each, all
}

// TestTortureUsage kills a process in the middle of its debits. The durable part of a bucket's counter is its usage: in
// mode always every answered debit, in mode ahead all but at most what was reserved.
func TestTortureUsage(t *testing.T) {
	t.Parallel()
	for mode, each := range map[disk.Mode]int64{disk.Ahead: 60, disk.Always: 10} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				each = 10
			}
			dir := t.TempDir()
			c, err := openTallies(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer c.f.Close()
			killHalfway(t, mode, dir, c, each*usageBuckets/2, each)

			begun, answered, total := c.read()
			s, err := disk.Open(dir, &disk.Config{Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			s.NoSync()
			durable, _ := usageOf(t, s, store.Monthly)
			lost := int64(0)
			for b := range usageBuckets {
				got, least := durable[usageKey(b).Entity], answered[b]
				if mode == disk.Ahead {
					least -= usageStretch
				}
				if got < least || got > begun[b] {
					t.Errorf("bucket %d: usage %d, of %d answered and %d begun", b, got, answered[b], begun[b])
				}
				lost += max(0, answered[b]-got)
			}
			t.Logf("killed after %d of %d debits; usage lacks %d", total, each*usageBuckets, lost)
			if t.Failed() {
				return
			}

			if err := debitAll(s, c, each); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s, err = disk.Open(dir, &disk.Config{Mode: mode, MustExist: true}); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for _, w := range store.Windows {
				got, all := usageOf(t, s, w)
				var sum, want int64
				for b := range usageBuckets {
					id := usageKey(b).Entity
					sum += got[id]
					want += durable[id] + each - begun[b]
					if w := durable[id] + each - begun[b]; got[id] != w {
						t.Fatalf("bucket %d: usage %d in the end, want %d", b, got[id], w)
					}
				}
				if sum != all || sum != want {
					t.Fatalf("%s windows: buckets %d, namespace %d, want %d", w, sum, all, want)
				}
			}
		})
	}
}

// killHalfway runs the child until the given number of debits are answered.
func killHalfway(t *testing.T, mode disk.Mode, dir string, c tallies, half, each int64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|%d", usageChildEnv, mode, dir, each))
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := begin(cmd.Wait)
	tick := time.NewTicker(5 * time.Millisecond) // real time: waits for another process
	defer tick.Stop()
	for {
		select {
		case <-ended:
			t.Fatalf("child: %s", complaints.String())
		case <-tick.C:
		}
		if _, _, total := c.read(); total >= half {
			break
		}
	}
	_ = cmd.Process.Kill()
	<-ended
}
