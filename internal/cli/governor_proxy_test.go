package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/mototest"
	"github.com/weirlimits/weir/internal/testkit/porttest"
)

const (
	proxyReads, proxyWrites = 10, 40 // units per second
	clientID, clientSecret  = "job", "the-secret-of-the-job"
)

// awsEnv is an environment for AWS programs, apart from the machine's own.
func awsEnv(dir, id, key string, more ...string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "AWS_REGION=us-east-1", "AWS_DEFAULT_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=" + id, "AWS_SECRET_ACCESS_KEY=" + key, "AWS_EC2_METADATA_DISABLED=true",
		"NO_PROXY=127.0.0.1", "GORACE=atexit_sleep_ms=0",
	}
	return append(env, more...)
}

// startProxy runs weir governor proxy until the test ends, and returns its address once it serves.
func startProxy(t *testing.T, env []string, args ...string) (url string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "weir", append([]string{"governor", "proxy", "--listen", "127.0.0.1:" + porttest.Free(t)}, args...)...)
	cmd.Dir, cmd.Env = t.TempDir(), env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	t.Cleanup(func() { // the context has ended: the signal is sent
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); !strings.HasSuffix(log.String(), "stopped\n") {
			t.Errorf("the proxy ended with %v:\n%s", err, log.String())
		}
	})
	url, _, ok := strings.Cut(strings.TrimPrefix(line, "serving "), " for ")
	if err != nil || !ok {
		t.Fatalf("printed %q: %v", line, err)
	}
	return url
}

// units returns how many capacity units a proxy has metered, by its metrics.
func units(t *testing.T, address string) (reads, writes float64) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	of := func(direction string) float64 {
		m := regexp.MustCompile(`weir_governor_units_total\{direction="` + direction + `",index="",table=""\} (\S+)`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("no units of %s in\n%s", direction, text)
		}
		n, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return of("read"), of("write")
}

func proxyTable(t *testing.T, endpoint string) string {
	t.Helper()
	name := dynamotest.Table(t)
	_, err := dynamotest.Client(t, endpoint).CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("sk"), AttributeType: types.ScalarAttributeTypeN},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}, {AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// Each program consumes more than it could in the time that it would take without a proxy. Programs in Python read the same through a proxy as without one, which keeps what they consume within its budgets. Their
// signatures are Boto3's.
func TestGovernorProxyBoto3(t *testing.T) {
	t.Parallel()
	python, engine := mototest.Tool(t, "python3"), dynamotest.Engine(t)
	programs, err := filepath.Abs("../../e2e/py/governor")
	if err != nil {
		t.Fatal(err)
	}
	metrics := "127.0.0.1:" + porttest.Free(t)
	env := awsEnv(t.TempDir(), "own", "own-secret", "WEIR_GOVERNOR_PROXY_ACCESS_KEY="+clientID+":"+clientSecret)
	proxy := startProxy(t, env, "--endpoint", engine, "--metrics", metrics, "--budget", strconv.Itoa(proxyReads)+":"+strconv.Itoa(proxyWrites))
	try := func(program, secret, endpoint, table string) (out []byte, log string, err error) {
		cmd := exec.CommandContext(t.Context(), python, "-B", filepath.Join(programs, program+".py"))
		cmd.Env = awsEnv(t.TempDir(), clientID, secret, "TABLE="+table, "AWS_ENDPOINT_URL_DYNAMODB="+endpoint)
		var failed bytes.Buffer
		cmd.Stderr = &failed
		out, err = cmd.Output()
		return out, failed.String(), err
	}
	run := func(program, endpoint, table string) string {
		out, log, err := try(program, clientSecret, endpoint, table)
		if err != nil || len(out) == 0 {
			t.Fatalf("%s at %s: %v\n%s%s", program, endpoint, err, out, log)
		}
		return string(out)
	}
	if _, log, err := try("query", "another-secret", proxy, "none"); err == nil || !strings.Contains(log, "InvalidSignatureException") {
		t.Errorf("with another secret: %v\n%s", err, log)
	}
	direct, governed := proxyTable(t, engine), proxyTable(t, engine)
	for _, tt := range []struct {
		program       string
		reads, writes float64 // that it consumes at least
		inFlight      float64 // what its calls in flight may cost more than estimated
	}{
		{"batch_write", 0, 240, 25}, {"scan", 50, 0, 10}, {"query", 50, 0, 5}, {"transaction", 40, 240, 20}, {"partiql", 2, 200, 5},
	} {
		reads, writes := units(t, metrics)
		began := time.Now()
		got := run(tt.program, proxy, governed)
		took := time.Since(began).Seconds()
		r, w := units(t, metrics)
		if r, w = r-reads, w-writes; r < tt.reads || w < tt.writes {
			t.Errorf("%s: metered %v reads and %v writes", tt.program, r, w)
		}
		t.Logf("%s: %.1f reads and %.1f writes in %.1f s", tt.program, r, w, took)
		if most := proxyReads*(took+2) + tt.inFlight; r > most {
			t.Errorf("%s: %v reads in %.1f s are more than %v", tt.program, r, took, most)
		}
		if most := proxyWrites*(took+2) + tt.inFlight; w > most {
			t.Errorf("%s: %v writes in %.1f s are more than %v", tt.program, w, took, most)
		}
		if want := run(tt.program, engine, direct); got != want {
			t.Errorf("%s prints\n%s through the proxy, and without\n%s", tt.program, got, want)
		}
	}
}

// Proxies of a fleet keep within one budget together.
func TestGovernorProxyFleet(t *testing.T) {
	t.Parallel()
	engine := dynamotest.Engine(t)
	table := proxyTable(t, engine)
	env := awsEnv(t.TempDir(), "own", "own-secret", "WEIR_STORE=dynamodb://"+dynamotest.Table(t)+"?endpoint="+engine)
	weir := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "weir", args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	weir("doctor", "--create-table")
	const each, rate = 60, 40.0
	var proxies [2]string
	for i := range proxies {
		proxies[i] = startProxy(t, env, "--endpoint", engine, "--fleet", "nightly", "--budget", "unlimited:40", "--max-wait", "2m")
	}
	began := time.Now()
	var group errgroup.Group
	for _, url := range proxies {
		c := dynamotest.Client(t, url)
		group.Go(func() error {
			for i := range each {
				if _, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: map[string]types.AttributeValue{
					"pk": &types.AttributeValueMemberS{Value: url}, "sk": &types.AttributeValueMemberN{Value: strconv.Itoa(i)},
				}}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began).Seconds()
	if most := rate*(took+0.05) + 2; 2*each > most {
		t.Errorf("%d writes in %.1f s are more than %.1f", 2*each, took, most)
	}
	t.Logf("%d writes in %.1f s", 2*each, took)
	var shown []struct {
		Limit, Shared float64
		Workers       []struct{ Worker string }
	}
	if err := json.Unmarshal([]byte(weir("governor", "watch", "nightly", "--once", "-o", "json")), &shown); err != nil {
		t.Fatal(err)
	}
	if len(shown) != 1 || shown[0].Limit != rate || shown[0].Shared > rate || len(shown[0].Workers) != 2 ||
		!strings.HasPrefix(shown[0].Workers[0].Worker, "proxy-") {
		t.Errorf("the fleet is %+v", shown)
	}
}
