package main

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

// buffer is safe for concurrent use: the reporter writes to it too.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func TestCopyHoldsItsBudget(t *testing.T) {
	t.Parallel()
	var out buffer
	began := time.Now()
	if err := run(t.Context(), []string{"-endpoint", dynamotest.Engine(t), "-items", "100", "-write", "50"}, &out); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("100 units at 50 a second, of which 50 were there, took %v", took)
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	text := out.String()
	var consumed, seconds float64
	if _, err := fmt.Sscanf(text[bytes.LastIndexByte([]byte(text[:len(text)-1]), '\n')+1:], "%f write units in %f s", &consumed, &seconds); err != nil || consumed != 100 {
		t.Errorf("%v in %s", err, text)
	}
}

func TestEndpointIsRequired(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), nil, &buffer{}); err == nil {
		t.Error("no error")
	}
}
