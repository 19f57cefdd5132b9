package reload_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/serve/reload"
)

// fixture is a file whose text is its value, except that "bad" is invalid.
type fixture struct {
	path   string
	loads  int
	failed []error
}

func (f *fixture) load() (string, error) {
	f.loads++
	text, err := os.ReadFile(f.path)
	if string(text) == "bad" {
		err = errors.New("bad text")
	}
	return string(text), err
}

// write replaces the file, as editors and secret stores do.
func (f *fixture) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(f.path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.path+".new", f.path); err != nil {
		t.Fatal(err)
	}
}

func setup(t *testing.T) (*fixture, *reload.Value[string]) {
	t.Helper()
	f := &fixture{path: filepath.Join(t.TempDir(), "file")}
	f.write(t, "one")
	v, err := reload.Open(f.load, func(err error) { f.failed = append(f.failed, err) }, f.path)
	if err != nil {
		t.Fatal(err)
	}
	return f, v
}

func TestGet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, v := setup(t)
		time.Sleep(time.Hour)
		if got := v.Get(); got != "one" || f.loads != 1 {
			t.Errorf("got %q after %d loads of a file that never changed", got, f.loads)
		}
		f.write(t, "two") // same length as before
		if got := v.Get(); got != "one" {
			t.Errorf("looked twice in a second: %q", got)
		}
		time.Sleep(reload.Every)
		if got := v.Get(); got != "two" {
			t.Errorf("got %q, want two", got)
		}
	})
}

func TestBadKeepsOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, v := setup(t)
		f.write(t, "bad")
		for range 3 {
			time.Sleep(reload.Every)
			if got := v.Get(); got != "one" {
				t.Fatalf("got %q of a bad file", got)
			}
		}
		if len(f.failed) != 1 {
			t.Errorf("told %d times: %q", len(f.failed), f.failed)
		}
		if err := os.Remove(f.path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reload.Every)
		if got := v.Get(); got != "one" || len(f.failed) != 2 {
			t.Errorf("got %q, told %q of a file that is gone", got, f.failed)
		}
		f.write(t, "two")
		time.Sleep(reload.Every)
		if got := v.Get(); got != "two" {
			t.Errorf("got %q, want two", got)
		}
	})
}

func TestOpenError(t *testing.T) {
	t.Parallel()
	f := &fixture{path: filepath.Join(t.TempDir(), "none")}
	if _, err := reload.Open(f.load, nil, f.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// After a change, no caller gets the old value while another reads the new one, unless that hangs. While the value is in
// use, callers wait for nothing.
func TestGetAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{path: filepath.Join(t.TempDir(), "file")}
		f.write(t, "one")
		var takes time.Duration
		v, err := reload.Open(func() (string, error) {
			time.Sleep(takes)
			return f.load()
		}, func(err error) { t.Error(err) }, f.path)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			idle, takes  time.Duration
			write, other string // what others get
			wait         time.Duration
		}{
			{time.Hour, 50 * time.Millisecond, "two", "two", 50 * time.Millisecond},
			{1500 * time.Millisecond, 50 * time.Millisecond, "three", "two", 0},
			{time.Hour, 10 * time.Second, "four", "three", 100 * time.Millisecond},
		} {
			time.Sleep(step.idle)
			takes = step.takes
			f.write(t, step.write)
			first := make(chan string, 1)
			go func() { first <- v.Get() }()
			synctest.Wait()
			for _, wait := range []time.Duration{step.wait, 0} {
				began := time.Now()
				if got := v.Get(); got != step.other || time.Since(began) != wait {
					t.Errorf("%+v: got %s after %s", step, got, time.Since(began))
				}
			}
			if got := <-first; got != step.write {
				t.Errorf("%+v: the first got %s", step, got)
			}
		}
	})
}
