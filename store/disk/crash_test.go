package disk_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/storetest"
)

// childEnv makes the test binary the child of a crash test. It holds mode, directory and seed.
const childEnv = "WEIR_DISK_CHILD"

const (
	crashCallers = 16
	crashBuckets = 12
	crashTakes   = 20 // tokens per take, at most
)

// crashLimit is the limit of a bucket that refills over time.
func crashLimit(i int) *store.Limit {
	return &store.Limit{
		Name: "rps", Amount: int64(1+i) * 100_000, Period: time.Second, Burst: int64(crashBuckets-i) * 100_000,
	}
}

func crashBucket(i int) store.Bucket {
	return store.Bucket{Namespace: "n", Entity: fmt.Sprint("entity-", i), Resource: "api"}
}

// onceLimit is the limit of a bucket that only settles refill.
var onceLimit = still("once", 300)

// childMain is the child: it takes and settles until it is killed, and prints each answer: "t bucket at amount" for an
// admitted take, "o" for a token from the bucket that only settles refill, "w id" before a settle and "d id" after it.
func childMain() {
	parts := strings.Split(os.Getenv(childEnv), "|")
	if len(parts) != 3 {
		return
	}
	seed, _ := strconv.ParseUint(parts[2], 10, 64)
	s, err := disk.Open(parts[1], &disk.Config{Mode: disk.Mode(parts[0]), Interval: 5 * time.Millisecond})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:revive // this is the child's main
	}
	var wg sync.WaitGroup
	for c := range crashCallers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(c)))
			for n := 0; ; n++ {
				if err := childStep(s, rng, fmt.Sprint(seed, "-", c, "-", n), seed); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1) //nolint:revive // as above
				}
			}
		})
	}
	wg.Wait()
}

func childStep(s *disk.Store, rng *rand.Rand, id string, seed uint64) error {
	ctx := context.Background()
	if rng.IntN(4) == 0 {
		b := onceBucket(seed)
		out, err := s.Take(ctx, store.Take{Debits: []store.Debit{debit(b, onceLimit, 1)}})
		if err != nil || !out.Allowed {
			return err
		}
		fmt.Println("o")
		if rng.IntN(2) == 0 {
			return nil
		}
		fmt.Println("w", id)
		if _, err := s.Settle(ctx, onceSettle(b, id)); err != nil {
			return err
		}
		fmt.Println("d", id)
		return nil
	}
	i, j := rng.IntN(crashBuckets), rng.IntN(crashBuckets)
	n, m := rng.Int64N(crashTakes)+1, rng.Int64N(crashTakes)+1
	ds := []store.Debit{debit(crashBucket(i), crashLimit(i), n)}
	if i != j && rng.IntN(3) == 0 {
		ds = append(ds, debit(crashBucket(j), crashLimit(j), m))
	}
	out, err := s.Take(ctx, store.Take{Debits: ds})
	if err != nil || !out.Allowed {
		return err
	}
	at := clock.Nanos(out.At)
	fmt.Println("t", i, at, n)
	if len(ds) > 1 {
		fmt.Println("t", j, at, m)
	}
	return nil
}

func onceBucket(seed uint64) store.Bucket {
	return store.Bucket{Namespace: "n", Entity: fmt.Sprint("once-", seed), Resource: "api"}
}

func onceSettle(b store.Bucket, id string) store.Settle {
	return store.Settle{Debits: []store.Debit{debit(b, onceLimit, -1)}, ID: id, Expires: time.Now().Add(time.Hour)}
}

// answered is what a child printed.
type answered struct {
	takes [crashBuckets][]admission
	once  int64 // admitted
	asked map[string]bool
}

type admission struct{ at, amount int64 }

func (a *answered) hear(line string) error {
	f := strings.Fields(line)
	switch {
	case len(f) == 4 && f[0] == "t":
		i, err1 := strconv.Atoi(f[1])
		at, err2 := strconv.ParseInt(f[2], 10, 64)
		n, err3 := strconv.ParseInt(f[3], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		a.takes[i] = append(a.takes[i], admission{at, n * 1000})
	case len(f) == 1 && f[0] == "o":
		a.once++
	case len(f) == 2 && f[0] == "w":
		a.asked[f[1]] = false
	case len(f) == 2 && f[0] == "d":
		a.asked[f[1]] = true
	default:
		return fmt.Errorf("child said %q", line)
	}
	return nil
}

// kill runs a child until it has printed the given number of lines, kills it, and reads what it printed in the meantime.
func (a *answered) kill(t *testing.T, mode disk.Mode, dir string, seed uint64, lines int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|%d", childEnv, mode, dir, seed))
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	for n := 0; ; n++ {
		line, err := r.ReadString('\n')
		if err != nil { // half a line does not count as printed
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			break
		}
		if err := a.hear(line); err != nil {
			t.Fatal(err)
		}
		if n == lines {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	if complaints.Len() > 0 {
		t.Fatalf("child: %s", complaints.String())
	}
}

// check checks I1 over everything that all children admitted.
func (a *answered) check() error {
	for i := range a.takes {
		l := crashLimit(i)
		p := clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}
		slices.SortFunc(a.takes[i], func(x, y admission) int { return cmp.Compare(x.at, y.at) })
		level := int64(-1 << 62)
		for _, d := range a.takes[i] {
			reading := p.Clock(d.at)
			if level = max(level, reading) + d.amount; level > reading+p.Burst {
				return fmt.Errorf("bucket %d: %d millitokens over the burst", i, level-reading-p.Burst)
			}
		}
	}
	return nil
}

// share is how long to torture a mode: the modes that promise most get the most time.
func share(t *testing.T, mode disk.Mode) time.Duration {
	t.Helper()
	d := storetest.TortureTime(t)
	switch mode {
	case disk.Ahead:
		return d
	case disk.Always:
		return d / 2
	default:
		return d / 5
	}
}

// TestTortureCrash repeatedly kills a process under load and checks everything that it had answered.
func TestTortureCrash(t *testing.T) {
	t.Parallel()
	for _, mode := range disk.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			dir := filepath.Join(t.TempDir(), "weir-data")
			all := &answered{}
			strict := mode == disk.Ahead || mode == disk.Always
			rounds, takes := 0, 0
			for end := time.Now().Add(share(t, mode)); rounds < 3 || time.Now().Before(end); rounds++ {
				all.once, all.asked = 0, map[string]bool{}
				child := rng.Uint64()
				all.kill(t, mode, dir, child, rng.IntN(1500))
				if err := all.check(); strict && err != nil {
					t.Fatalf("round %d: %v", rounds, err)
				}
				takes += int(all.once)
				if rng.IntN(4) > 0 {
					afterwards(t, mode, dir, child, all, strict)
				}
				if rounds%50 == 49 { // time has passed in any case
					all = &answered{}
				}
			}
			for i := range all.takes {
				takes += len(all.takes[i])
			}
			t.Logf("%d crashes", rounds)
			if takes == 0 {
				t.Fatal("nothing was ever admitted")
			}
		})
	}
}

// afterwards opens what the child left, repeats its settles, and drains the bucket that only settles refill. In total, no
// more than the burst and the returns may have been taken, with each settle counted once.
func afterwards(t *testing.T, mode disk.Mode, dir string, child uint64, all *answered, strict bool) {
	t.Helper()
	s, err := disk.Open(dir, &disk.Config{Mode: mode})
	if err != nil {
		t.Fatalf("after the crash: %v", err)
	}
	b := onceBucket(child)
	for id, done := range all.asked {
		_, err := s.Settle(t.Context(), onceSettle(b, id))
		if err != nil && !errors.Is(err, store.ErrSettled) || strict && done && err == nil {
			t.Fatalf("settle %s again: %v; it was answered: %t", id, err, done)
		}
	}
	left := int64(0)
	for {
		out, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{debit(b, onceLimit, 1)}})
		if err != nil {
			t.Fatal(err)
		}
		if !out.Allowed {
			break
		}
		left++
	}
	if total, most := all.once+left, onceLimit.Burst/1000+int64(len(all.asked)); strict && total > most {
		t.Fatalf("%d taken before the crash and %d after it, want at most %d", all.once, left, most)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTorture(t *testing.T) {
	t.Parallel()
	for _, mode := range []disk.Mode{disk.Ahead, disk.Always, disk.Interval} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			storetest.Torture(t, harness(mode), share(t, mode))
		})
	}
}
