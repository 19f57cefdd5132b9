package main

import (
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in, want string
		ok             bool
	}{
		{"nothing", "", "0 passed, 0 failed, 0 skipped\n", false},
		{
			"passed", `{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`, "ok  \tp\t0.1s\n1 passed, 0 failed, 0 skipped\n", true,
		},
		{
			"failed", `{"Action":"output","Package":"p","Test":"TestA","Output":"a_test.go:1: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
`, "a_test.go:1: wrong\nFAIL\tp\t0.1s\n0 passed, 1 failed, 0 skipped\n", false,
		},
		{
			"does not build", `{"ImportPath":"p","Action":"build-output","Output":"a.go:1: undefined: x\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p"}
{"Action":"pass","Package":"q","Test":"TestA"}
`, "a.go:1: undefined: x\nFAIL\tp [build failed]\n1 passed, 0 failed, 0 skipped\n", false,
		},
		{
			"ended in the middle of a test", `{"Action":"output","Package":"p","Test":"TestA","Output":"panic: late\n"}
{"Action":"fail","Package":"p"}
`, "panic: late\np.TestA did not end\n0 passed, 1 failed, 0 skipped\n", false,
		},
		{
			"skipped", `{"Action":"output","Package":"p","Test":"TestA","Output":"a_test.go:1: no redis-server: install it\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Test":"TestC"}
`, "skipped: 1 elsewhere or on purpose, 1 for lack of redis-server\n1 passed, 0 failed, 2 skipped\n", true,
		},
		{"not of a test", "go: no such module\n", "go: no such module\n0 passed, 0 failed, 0 skipped\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			s := newSummary(&out)
			if err := s.read(strings.NewReader(tt.in)); err != nil {
				t.Fatal(err)
			}
			if ok := s.end(); ok != tt.ok || out.String() != tt.want {
				t.Errorf("%v:\n%s\nwant %v:\n%s", ok, out.String(), tt.ok, tt.want)
			}
		})
	}
}
