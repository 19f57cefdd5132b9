package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/aws/function"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// kept is a store that survives closing a limiter on it.
type kept struct{ *memory.Store }

func (kept) Close() error { return nil }

const noStack = `<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>Stack with id %s does not exist</Message></Error></ErrorResponse>`

const oneStack = `<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>weir</StackName><Outputs>
<member><OutputKey>TableName</OutputKey><OutputValue>weir</OutputValue></member>
<member><OutputKey>%s</OutputKey><OutputValue>arn:aws:lambda:us-east-1:123456789012:function:weir</OutputValue></member>
</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>`

// playAWS serves the two calls that a command makes: cloudformation:DescribeStacks and lambda:InvokeFunction.
func playAWS(fn *function.Provisioner) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) {
		switch name := r.FormValue("StackName"); {
		case r.FormValue("Action") != "DescribeStacks":
			http.Error(w, "not allowed", http.StatusForbidden)
		case name == "weir":
			_, _ = fmt.Fprintf(w, oneStack, "ProvisionerArn")
		case name == "other":
			_, _ = fmt.Fprintf(w, oneStack, "SomethingElse")
		default:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, noStack, name)
		}
	})
	mux.HandleFunc("POST /2015-03-31/functions/{name}/invocations", func(w http.ResponseWriter, r *http.Request) {
		payload, _ := io.ReadAll(r.Body)
		if strings.Contains(string(payload), "crash") {
			w.Header().Set("X-Amz-Function-Error", "Unhandled")
			_, _ = io.WriteString(w, `{"errorMessage":"Task timed out after 60.00 seconds"}`)
			return
		}
		got, err := fn.Handle(r.Context(), payload)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(got) // the client reports the truncation
	})
	return mux
}

// A command prints the same whether it does the work itself or the function does, and needs only the rights to call the
// function.
func TestViaLambda(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/lambda", UpdateScripts: *update, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			st := kept{memory.New(nil)}
			env.Values["store"] = st
			fn := &function.Provisioner{Table: "weir", Log: slog.New(slog.DiscardHandler), Open: func(context.Context) (*weir.Limiter, error) {
				return weir.New(weir.Config{Store: st})
			}}
			srv := httptest.NewServer(playAWS(fn))
			env.Defer(srv.Close)
			env.Setenv("AWS_ENDPOINT_URL", srv.URL)
			env.Setenv("AWS_REGION", "us-east-1")
			env.Setenv("AWS_ACCESS_KEY_ID", "test")
			env.Setenv("AWS_SECRET_ACCESS_KEY", "test")
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": exits, "spend": spend},
	})
}

// spend spends tokens of ten entities in a namespace for the rest of the script.
func spend(ts *testscript.TestScript, _ bool, args []string) {
	lim, err := weir.New(weir.Config{Store: ts.Value("store").(store.Store), CacheTTL: 50 * time.Millisecond})
	ts.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	ts.Defer(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = lim.In(args[0]).Allow(ctx, fmt.Sprint("e", i%10), "api") // refusals count, too
			<-tick.C
		}
	}()
}
