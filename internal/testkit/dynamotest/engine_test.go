package dynamotest_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"go.uber.org/goleak"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

const childEnv = "WEIR_TEST_ENGINE_PARENT"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEngineAnswers(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]func(testing.TB) string{"shared": dynamotest.Engine, "fresh": dynamotest.FreshEngine} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dynamotest.Client(t, endpoint(t))
			if _, err := db.ListTables(t.Context(), &dynamodb.ListTablesInput{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestEngineIsShared(t *testing.T) {
	t.Parallel()
	if a, b := dynamotest.Engine(t), dynamotest.Engine(t); a != b {
		t.Errorf("Engine: %s, then %s", a, b)
	}
}

// TestEngineEndsWithItsProcess kills a process that has started an engine: the engine must stop listening.
func TestEngineEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv(childEnv) != "" {
		os.Stdout.WriteString("\nengine " + dynamotest.Engine(t) + "\n")
		select {} // until it is killed
	}
	if os.Getenv("WEIR_TEST_DYNAMODB") != "" {
		t.Skip("the engine that WEIR_TEST_DYNAMODB names is not ours to end")
	}
	dynamotest.Engine(t) // skips if there is no engine
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEngineEndsWithItsProcess$")
	child.Env = append(os.Environ(), childEnv+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	addr := ""
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		_, addr, _ = strings.Cut(lines.Text(), "engine http://")
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("the child's engine does not listen at %q: %v", addr, err)
	}
	defer conn.Close()
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	child.Wait()
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); os.IsTimeout(err) || err == nil {
		t.Errorf("the engine outlived the process that started it: %v", err)
	}
}
