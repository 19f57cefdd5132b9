// Command mutate breaks the code on purpose and fails if no test notices.
//
// Each testdata/mutants/NAME.patch is a unified diff under two headers, one with the tests that must fail and one
// that describes what is broken:
//
//	# test: ./internal/clock -run 'TestNeverOverAdmit'
//	# breaks: a debit that fits exactly is refused
//
// The named tests run on a copy of the unmodified tree, where they must pass, and then on one copy per mutant, where
// they must fail. A mutant that survives, does not apply or does not compile is a failure.
//
// Run it from the root of the repository. Arguments select the mutants whose names contain one of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func main() {
	dir := flag.String("dir", filepath.Join("testdata", "mutants"), "where the patches are")
	jobs := flag.Int("j", min(2, runtime.NumCPU()), "how many to test at once")
	p := part{1, 1}
	flag.Func("part", "the K-th of N parts of them alone, as `K/N`", p.parse)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, ".", *dir, *jobs, p, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// run tests the mutants in dir on the tree at root, and returns an error unless each is killed.
func run(ctx context.Context, w io.Writer, root, dir string, jobs int, p part, words []string) error {
	mutants, err := find(dir, words)
	if err != nil {
		return err
	}
	mutants = p.of(mutants)
	scratch, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	tree := filepath.Join(scratch, "tree")
	if err := snapshot(ctx, root, tree); err != nil {
		return err
	}
	// Tests look for installed tools in parent directories.
	if installed, err := filepath.Abs(filepath.Join(root, "e2e")); err != nil {
		return err
	} else if err := os.Symlink(installed, filepath.Join(scratch, "e2e")); err != nil {
		return err
	}

	unsound := soundness(ctx, tree, mutants, jobs)
	var (
		mu     sync.Mutex
		failed int
	)
	each(mutants, jobs, func(m mutant) {
		begun := time.Now()
		by, err := "", unsound[m.test]
		if err == nil {
			by, err = try(ctx, tree, m)
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed++
			fmt.Fprintf(w, "FAIL  %-40s %s\n\tgo test %s\n\t%v\n", m.name, m.breaks, m.test, err)
			return
		}
		fmt.Fprintf(w, "ok    %-40s %s, %.1fs\n", m.name, by, time.Since(begun).Seconds())
	})
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	fmt.Fprintf(w, "mutate: %d passed, %d failed\n", len(mutants)-failed, failed)
	if failed > 0 {
		return fmt.Errorf("%d of %d mutants were not killed", failed, len(mutants))
	}
	return nil
}

// soundness runs each go test named by a mutant once on the unmodified tree, and returns the errors.
func soundness(ctx context.Context, tree string, mutants []mutant, jobs int) map[string]error {
	var tests []mutant
	unsound := make(map[string]error)
	for _, m := range mutants {
		if _, seen := unsound[m.test]; !seen {
			tests = append(tests, m)
			unsound[m.test] = nil
		}
	}
	var mu sync.Mutex
	each(tests, jobs, func(m mutant) {
		v, err := goTest(ctx, tree, m.args)
		if err == nil {
			err = v.sound()
		}
		mu.Lock()
		defer mu.Unlock()
		unsound[m.test] = err
	})
	return unsound
}

// try returns the test that killed a mutant of the tree, or why none did.
func try(ctx context.Context, tree string, m mutant) (string, error) {
	dir, err := os.MkdirTemp(filepath.Dir(tree), "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(tree)); err != nil {
		return "", err
	}
	if err := apply(ctx, dir, m.path); err != nil {
		return "", err
	}
	v, err := goTest(ctx, dir, m.args)
	if err == nil && v.killed() != nil { // once more, because randomized tests find a fault only with some probability
		v, err = goTest(ctx, dir, m.args)
	}
	if err != nil {
		return "", err
	}
	return v.by, v.killed()
}

// each calls f for every item, at most jobs at a time.
func each[T any](items []T, jobs int, f func(T)) {
	var (
		group sync.WaitGroup
		slots = make(chan struct{}, jobs)
	)
	for _, item := range items {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			f(item)
		})
	}
	group.Wait()
}
