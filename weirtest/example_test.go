package weirtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/weirtest"
)

// greeter is code that is limited.
type greeter struct{ lim *weir.Limiter }

func (g *greeter) greet(ctx context.Context, name string) (string, error) {
	_, err := g.lim.Acquire(ctx, weir.Request{Entity: name, Resource: "greetings", Tokens: weir.Tokens{"rpm": 1}})
	if err != nil {
		return "", err
	}
	return "hello " + name, nil
}

// A test advances the clock, and checks what was spent.
func Example() {
	test(func(t testing.TB) {
		l := weirtest.New(t, weir.PerMinute("rpm", 1))
		g := &greeter{l.Limiter}

		fmt.Println(g.greet(t.Context(), "alice"))
		_, err := g.greet(t.Context(), "alice")
		var over *weir.ExceededError
		fmt.Println(errors.As(err, &over), over.RetryAfter)

		l.Advance(over.RetryAfter) // exact to the nanosecond
		fmt.Println(g.greet(t.Context(), "alice"))
		fmt.Println(l.Spent("alice", "greetings", "rpm"), "spent")
	})
	// Output:
	// hello alice <nil>
	// true 1m0s
	// hello alice <nil>
	// 2 spent
}

// Test what happens when the store does not answer.
func ExampleLimiter_Fail() {
	test(func(t testing.TB) {
		l := weirtest.New(t, weir.PerMinute("rpm", 1))
		g := &greeter{l.Limiter}

		l.Fail(errors.New("cable cut"))
		_, err := g.greet(t.Context(), "alice")
		fmt.Println(errors.Is(err, weir.ErrUnavailable))

		l.Fail(nil)
		fmt.Println(g.greet(t.Context(), "alice"))
	})
	// Output:
	// true
	// hello alice <nil>
}

func ExampleLimiter_SetLimits() {
	test(func(t testing.TB) {
		l := weirtest.New(t, weir.PerMinute("rpm", 1))             // for everybody,
		l.SetLimits("alice", "greetings", weir.PerHour("rpm", 60)) // except alice
		g := &greeter{l.Limiter}

		for range 2 {
			fmt.Println(g.greet(t.Context(), "alice"))
		}
		l.Advance(time.Minute)
		fmt.Println(l.Spent("alice", "greetings", "rpm"), "spent")
	})
	// Output:
	// hello alice <nil>
	// hello alice <nil>
	// 2 spent
}

// test runs f as the testing package would.
func test(f func(testing.TB)) {
	t := &exampleT{}
	defer func() {
		for i := len(t.cleanups) - 1; i >= 0; i-- {
			t.cleanups[i]()
		}
	}()
	f(t)
}

// exampleT stands for the *testing.T that an example does not get.
type exampleT struct {
	testing.TB
	cleanups []func()
}

func (t *exampleT) Helper()                           {}
func (t *exampleT) Context() context.Context          { return context.Background() }
func (t *exampleT) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *exampleT) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
