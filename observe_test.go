package weir_test

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/weirlimits/weir"
)

func TestJoinObservers(t *testing.T) {
	t.Parallel()
	var got []string
	first := &weir.Observer{Decided: func(_ context.Context, e weir.DecidedEvent) { got = append(got, "first "+e.Entity) }}
	second := &weir.Observer{
		Decided: func(_ context.Context, e weir.DecidedEvent) { got = append(got, "second "+e.Entity) },
		Called:  func(_ context.Context, e weir.CalledEvent) { got = append(got, "called "+e.Op) },
	}
	o := weir.JoinObservers(nil, first, nil, second)
	o.Decided(t.Context(), weir.DecidedEvent{Entity: "alice"})
	o.Called(t.Context(), weir.CalledEvent{Op: "take"})
	if want := []string{"first alice", "second alice", "called take"}; !slices.Equal(got, want) {
		t.Fatalf("told %q, want %q", got, want)
	}
	if o.WouldRefuse != nil {
		t.Fatal("a function that nobody has is not nil: the limiter would ask the store for more")
	}
}

// TestJoinObserversLeavesOutNone fails if a field is added to Observer but not to JoinObservers.
func TestJoinObserversLeavesOutNone(t *testing.T) {
	t.Parallel()
	calls := make([]int, reflect.TypeFor[weir.Observer]().NumField())
	one := func() *weir.Observer {
		o := &weir.Observer{}
		for f, v := range reflect.ValueOf(o).Elem().Fields() {
			v.Set(reflect.MakeFunc(f.Type, func([]reflect.Value) []reflect.Value { calls[f.Index[0]]++; return nil }))
		}
		return o
	}
	joined := reflect.ValueOf(weir.JoinObservers(one(), one())).Elem()
	for f, v := range joined.Fields() {
		if v.IsNil() {
			t.Fatalf("%s is left out", f.Name)
		}
		v.Call([]reflect.Value{reflect.ValueOf(t.Context()), reflect.Zero(v.Type().In(1))})
	}
	for i, n := range calls {
		if n != 2 {
			t.Errorf("%s was told %d times, want 2", joined.Type().Field(i).Name, n)
		}
	}
}
